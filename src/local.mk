# What knows nothing of ranks or models.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	src/error.c src/error.h \
	src/gumbel.c src/gumbel.h src/hash.h \
	src/log.c src/log.h \
	src/sampler.c src/sampler.h \
	src/chat.h src/console.h src/launcher.h src/modes.h src/options.h src/text.h src/tokenizer.h \
	src/sum_tree.c src/sum_tree.h
