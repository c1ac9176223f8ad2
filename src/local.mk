# What knows nothing of ranks or models.
noinst_LIBRARIES += libbase.a
libbase_a_CPPFLAGS = $(AM_CPPFLAGS) -DRF_DATA_DIR=\"$(pkgdatadir)\" -DRF_SOURCE_DIR=\"$(abs_top_srcdir)\"
libbase_a_SOURCES = \
	src/bpe.c src/bpe.h \
	src/byte_table.c src/byte_table.h \
	src/chat.c src/chat.h \
	src/clock.h \
	src/console.c src/console.h \
	src/demo_pair.c src/demo_pair.h \
	src/detokenizer.c \
	src/error.c src/error.h \
	src/flags.c src/flags.h src/flags_values.c \
	src/gguf.c src/gguf.h src/gguf_keys.c src/gguf_parse.c src/gguf_private.h \
	src/gguf_writer.c src/gguf_writer.h \
	src/gumbel.c src/gumbel.h src/hash.h src/philox.h \
	src/half.h \
	src/hash_index.c src/hash_index.h \
	src/launcher.c src/launcher.h \
	src/log.c src/log.h \
	src/modes.h \
	src/op_timers.c src/op_timers.h \
	src/options.c src/options.h \
	src/options_help.c src/options_prompt.c \
	src/options_table.c src/options_table.h src/options_values.c \
	src/pretokenizer.c src/pretokenizer.h \
	src/quant.c src/quant.h \
	src/random_seed.c src/random_seed.h \
	src/sampler.c src/sampler.h \
	src/special_tokens.c src/special_tokens.h \
	src/sum_tree.c src/sum_tree.h \
	src/text.c src/text.h \
	src/tokenizer.c src/tokenizer.h src/tokenizer_gguf.c \
	src/utf8.c src/utf8.h

# Models with random weights.
bin_PROGRAMS += rankflash-synth
synth_sources = src/synth_files.c src/synth_files.h src/synth_options.c src/synth_options.h \
	src/synth_vocabulary.c src/synth_vocabulary.h src/synth_weights.c src/synth_weights.h
rankflash_synth_SOURCES = src/synth_main.c $(synth_sources)
rankflash_synth_LDADD = $(model_libraries) $(rank_system_libraries)
