# Unit tests (cmocka) and scripts. Every test exits 0, 1 or 77 (skipped).

if HAVE_CMOCKA
UNIT_LIBS = libbase.a $(CMOCKA_LIBS) $(PCRE2_LIBS) $(JANSSON_LIBS)

check_PROGRAMS += tests/test_options tests/test_launcher tests/test_console
TESTS += tests/test_options tests/test_launcher tests/test_console
tests_test_options_SOURCES = tests/test_options.c tests/check.h
tests_test_options_LDADD = $(UNIT_LIBS)
check_PROGRAMS += tests/test_options_docs
TESTS += tests/test_options_docs
tests_test_options_docs_SOURCES = tests/test_options_docs.c src/synth_options.c src/synth_options.h \
	rank/bench_options.c rank/bench.h tests/check.h
tests_test_options_docs_CPPFLAGS = $(AM_CPPFLAGS) -DRF_DOCS=\"$(abs_top_srcdir)/docs\"
tests_test_options_docs_LDADD = $(UNIT_LIBS)
tests_test_launcher_SOURCES = tests/test_launcher.c tests/check.h
tests_test_launcher_LDADD = $(UNIT_LIBS)
tests_test_console_SOURCES = tests/test_console.c tests/check.h
tests_test_console_LDADD = $(UNIT_LIBS)

check_PROGRAMS += tests/test_text_parts tests/test_vocabulary tests/test_chat
TESTS += tests/test_text_parts tests/test_vocabulary tests/test_chat
tests_test_text_parts_SOURCES = tests/test_text_parts.c tests/vocabulary.c tests/vocabulary.h tests/check.h
tests_test_text_parts_LDADD = $(UNIT_LIBS)
tests_test_vocabulary_SOURCES = tests/test_vocabulary.c tests/vocabulary.c tests/vocabulary.h tests/check.h
tests_test_vocabulary_LDADD = $(UNIT_LIBS)
tests_test_chat_SOURCES = tests/test_chat.c tests/vocabulary.c tests/vocabulary.h tests/check.h
tests_test_chat_LDADD = $(UNIT_LIBS)

check_PROGRAMS += tests/test_tokenizer
TESTS += tests/test_tokenizer
tests_test_tokenizer_SOURCES = tests/test_tokenizer.c tests/check.h
tests_test_tokenizer_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\" \
	-DRF_SHARE=\"$(abs_top_srcdir)/share\"
tests_test_tokenizer_LDADD = $(UNIT_LIBS)
check_PROGRAMS += tests/test_tokenizer_gguf
TESTS += tests/test_tokenizer_gguf
tests_test_tokenizer_gguf_SOURCES = tests/test_tokenizer_gguf.c tests/vocabulary.c tests/vocabulary.h tests/check.h
tests_test_tokenizer_gguf_LDADD = $(UNIT_LIBS)

check_PROGRAMS += tests/test_quant tests/test_gguf tests/test_gguf_hostile
TESTS += tests/test_quant tests/test_gguf tests/test_gguf_hostile
tests_test_quant_SOURCES = tests/test_quant.c tests/check.h
tests_test_quant_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\"
tests_test_quant_LDADD = $(UNIT_LIBS)
tests_test_gguf_SOURCES = tests/test_gguf.c tests/gguf_files.c tests/gguf_files.h tests/check.h
tests_test_gguf_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\"
tests_test_gguf_LDADD = $(UNIT_LIBS)
tests_test_gguf_hostile_SOURCES = tests/test_gguf_hostile.c tests/gguf_files.c tests/gguf_files.h tests/check.h
tests_test_gguf_hostile_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\"
tests_test_gguf_hostile_LDADD = $(UNIT_LIBS)
endif

# tests/data/README.md says what these are and where they come from.
EXTRA_DIST += tests/data/README.md \
	tests/data/golden.json tests/data/golden-logits.f32 \
	tests/data/blocks/BF16.bin tests/data/blocks/BF16.f32 \
	tests/data/blocks/F16.bin tests/data/blocks/F16.f32 \
	tests/data/blocks/Q8_0.bin tests/data/blocks/Q8_0.f32 \
	tests/data/micro/micro-F32.gguf tests/data/micro/micro-DFlash1-F32.gguf tests/data/micro/micro-DFlash2-F32.gguf \
	tests/data/micro/micro-logits.f32 tests/data/micro/micro.json \
	tests/data/tokenizer/qwen3-vocab.gguf \
	tests/data/tokenizer/qwen3-expected.json tests/data/tokenizer/tiny-expected.json

# The bit matrix: matrix_run plays every drafter and length in one process, matrix.sh every cut.
check_PROGRAMS += tests/matrix_run
tests_matrix_run_SOURCES = tests/matrix_run.c
tests_matrix_run_LDADD = $(rank_libraries) $(rank_system_libraries)
if HAVE_MPI
check_PROGRAMS += tests/collectives_run
tests_collectives_run_SOURCES = tests/collectives_run.c tests/backend_fake.c tests/backend_fake.h
tests_collectives_run_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc
tests_collectives_run_LDADD = libcollectives.a libbase.a $(MPI_LIBS)
endif
TESTS += tests/batch.sh tests/bench.sh tests/collectives.sh tests/console.sh tests/failures.sh tests/memory.sh tests/matrix.sh tests/slurm.sh
EXTRA_DIST += tests/batch.sh tests/bench.sh tests/collectives.sh tests/console.sh tests/memory.sh tests/failures.sh tests/collectives_run.c tests/backend_fake.c tests/backend_fake.h tests/matrix.sh tests/mpi.sh tests/slurm.sh tests/slurm-two-nodes
AM_TESTS_ENVIRONMENT = top_builddir=$(top_builddir) srcdir=$(srcdir); export top_builddir srcdir;

if HAVE_CMOCKA
check_PROGRAMS += tests/test_sampler tests/test_sum_tree
TESTS += tests/test_sampler tests/test_sum_tree
tests_test_sampler_SOURCES = tests/test_sampler.c tests/check.h
tests_test_sampler_LDADD = $(UNIT_LIBS)
tests_test_sum_tree_SOURCES = tests/test_sum_tree.c tests/check.h
tests_test_sum_tree_LDADD = libcollectives.a libbase.a $(CMOCKA_LIBS) $(MPI_LIBS)
endif

# Tests of the leader's loop on one rank.
if HAVE_CMOCKA
check_PROGRAMS += tests/test_turns
TESTS += tests/test_turns
tests_test_turns_SOURCES = tests/test_turns.c tests/check.h
tests_test_turns_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_signals tests/test_topology
TESTS += tests/test_signals tests/test_topology
tests_test_signals_SOURCES = tests/test_signals.c tests/check.h
tests_test_signals_LDADD = librank.a $(CMOCKA_LIBS)
tests_test_topology_SOURCES = tests/test_topology.c tests/check.h
tests_test_topology_LDADD = librank.a libbase.a $(HWLOC_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_rank_parts
TESTS += tests/test_rank_parts
tests_test_rank_parts_SOURCES = tests/test_rank_parts.c tests/check.h
tests_test_rank_parts_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_batch
TESTS += tests/test_batch
tests_test_batch_SOURCES = tests/test_batch.c tests/check.h
tests_test_batch_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_bench_parts
TESTS += tests/test_bench_parts
tests_test_bench_parts_SOURCES = tests/test_bench_parts.c tests/check.h
tests_test_bench_parts_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_free_runs
TESTS += tests/test_free_runs
tests_test_free_runs_SOURCES = tests/test_free_runs.c tests/check.h
tests_test_free_runs_CPPFLAGS = $(AM_CPPFLAGS) -DRF_TEST_DATA=\"$(abs_top_srcdir)/tests/data\"
tests_test_free_runs_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test_no_allocation
TESTS += tests/test_no_allocation
tests_test_no_allocation_SOURCES = tests/test_no_allocation.c tests/check.h
tests_test_no_allocation_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
tests_test_no_allocation_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
endif

# The plan.
if HAVE_CMOCKA
check_PROGRAMS += tests/test_plan
TESTS += tests/test_plan
tests_test_plan_SOURCES = tests/test_plan.c tests/check.h
tests_test_plan_CPPFLAGS = $(AM_CPPFLAGS) -DRF_SHARE=\"$(abs_top_srcdir)/share\"
tests_test_plan_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
endif
if HAVE_CMOCKA
check_PROGRAMS += tests/test_plan_cost
TESTS += tests/test_plan_cost
tests_test_plan_cost_SOURCES = tests/test_plan_cost.c tests/check.h
tests_test_plan_cost_CPPFLAGS = $(AM_CPPFLAGS) -DRF_SHARE=\"$(abs_top_srcdir)/share\"
tests_test_plan_cost_LDADD = $(rank_libraries) $(rank_system_libraries) $(CMOCKA_LIBS)
endif
check_PROGRAMS += tests/make_27b
tests_make_27b_SOURCES = tests/make_27b.c
tests_make_27b_LDADD = libbase.a
TESTS += tests/plan.sh
EXTRA_DIST += tests/plan.sh

# Models with random weights.
TESTS += tests/synth.sh
EXTRA_DIST += tests/synth.sh
if HAVE_CMOCKA
check_PROGRAMS += tests/test_synth
TESTS += tests/test_synth
tests_test_synth_SOURCES = tests/test_synth.c src/synth_options.c src/synth_options.h src/synth_weights.c \
	src/synth_weights.h tests/check.h
tests_test_synth_LDADD = libbase.a $(CMOCKA_LIBS)
endif
