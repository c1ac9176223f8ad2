# Models: a pair on one rank, driven as the engine drives it.
if HAVE_CMOCKA
pair_sources = tests/pair.c tests/pair.h tests/check.h
PAIR_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\" -DRF_SHARE=\"$(abs_top_srcdir)/share\"
PAIR_LIBS = libmodels.a libcollectives.a $(cpu_libraries) $(UNIT_LIBS) $(MPI_LIBS)

check_PROGRAMS += tests/test_slice tests/test_micro tests/test_golden tests/test_rounds tests/test_model_files
TESTS += tests/test_slice tests/test_micro tests/test_golden tests/test_rounds tests/test_model_files
tests_test_slice_SOURCES = tests/test_slice.c tests/check.h
tests_test_slice_LDADD = $(PAIR_LIBS)
tests_test_golden_SOURCES = tests/test_golden.c $(pair_sources)
tests_test_golden_CPPFLAGS = $(PAIR_CPPFLAGS)
tests_test_golden_LDADD = $(PAIR_LIBS)
tests_test_micro_SOURCES = tests/test_micro.c $(pair_sources)
tests_test_micro_CPPFLAGS = $(PAIR_CPPFLAGS)
tests_test_micro_LDADD = $(PAIR_LIBS)
tests_test_rounds_SOURCES = tests/test_rounds.c $(pair_sources)
tests_test_rounds_CPPFLAGS = $(PAIR_CPPFLAGS)
tests_test_rounds_LDADD = $(PAIR_LIBS)
tests_test_model_files_SOURCES = tests/test_model_files.c tests/gguf_edit.c tests/gguf_edit.h $(pair_sources)
tests_test_model_files_CPPFLAGS = $(PAIR_CPPFLAGS)
tests_test_model_files_LDADD = $(PAIR_LIBS)
endif
