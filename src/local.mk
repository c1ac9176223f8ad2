# What knows nothing of ranks or models.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	src/error.c src/error.h \
	src/log.c src/log.h \
	src/sum_tree.c src/sum_tree.h
