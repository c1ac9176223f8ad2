# What a network computes: one file per architecture.
noinst_LIBRARIES += libmodels.a
libmodels_a_SOURCES = \
	models/bind.c models/bind.h \
	models/dflash.c models/dflash.h models/dflash_impl.h \
	models/dflash_bind.c models/dflash_params.c models/dflash_state.c models/dflash_tensors.c \
	models/meta.c models/meta.h \
	models/model.h models/shard.h \
	models/parts.c models/parts.h \
	models/qwen35.c models/qwen35.h models/qwen35_impl.h \
	models/qwen35_bind.c models/qwen35_mtp.c models/qwen35_params.c models/qwen35_state.c models/qwen35_tensors.c \
	models/selector.c \
	models/slice.c models/slice.h \
	models/state.c models/state.h \
	models/table.c models/table.h
