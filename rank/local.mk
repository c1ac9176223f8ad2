# What a rank is: plan, binding, commands, leader and follower; and the program.
noinst_LIBRARIES += librank.a
librank_a_SOURCES = \
	rank/batch.c rank/batch.h rank/batch_files.c rank/batch_files.h rank/batch_lines.c rank/batch_lines.h \
	rank/batch_request.c rank/batch_request.h \
	rank/choose.c rank/leader.h \
	rank/collect.c rank/collect.h \
	rank/command.c rank/command.h \
	rank/device.c rank/device.h \
	rank/engine.c rank/engine.h \
	rank/generate.c rank/generate.h \
	rank/job.c rank/job.h rank/job_files.c rank/startup.c \
	rank/memory.c rank/memory.h \
	rank/places.c rank/places.h \
	rank/plan.c rank/plan.h rank/plan_bytes.c rank/plan_cut.c rank/plan_print.c \
	rank/plan_cost.c rank/plan_cost.h rank/plan_print_cost.c \
	rank/plan_machine.c rank/plan_machine.h rank/bench_file.c rank/bench_file.h \
	rank/progress.c rank/progress.h \
	rank/prompt.c rank/prompt.h \
	rank/round.c rank/round.h \
	rank/signals.c rank/signals.h \
	rank/stats.c rank/stats.h \
	rank/topology.c rank/topology.h

# Everything below the program, highest room first.
model_libraries = libmodels.a libcollectives.a $(gpu_libraries) $(cpu_libraries) libbase.a
rank_libraries = librank.a $(model_libraries)
rank_system_libraries = $(gpu_system_libraries) $(MPI_LIBS) $(HWLOC_LIBS) $(PCRE2_LIBS) $(JANSSON_LIBS)

bin_PROGRAMS += rankflash
rankflash_SOURCES = src/main.c
rankflash_LDADD = $(rank_libraries) $(rank_system_libraries)

bin_PROGRAMS += rankflash-bench
rankflash_bench_SOURCES = rank/bench.c rank/bench.h rank/bench_allreduce.c rank/bench_compare.c rank/bench_limits.c \
	rank/bench_generate.c rank/bench_load.c rank/bench_options.c rank/bench_report.c rank/bench_steps.c rank/bench_work.c
rankflash_bench_LDADD = $(rank_libraries) $(rank_system_libraries)
