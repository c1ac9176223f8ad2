# How ranks add and exchange: one file per transport.
noinst_LIBRARIES += libcollectives.a
libcollectives_a_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
libcollectives_a_SOURCES = \
	collectives/check.c \
	collectives/comm.c collectives/comm.h \
	collectives/sum_plan.c \
	collectives/transport.h collectives/transport_bytes.c \
	collectives/world.c collectives/world.h
if HAVE_MPI
libcollectives_a_SOURCES += collectives/mpi_call.h collectives/transport_mpi.c collectives/transport_shm.c
else
EXTRA_DIST += collectives/mpi_call.h collectives/transport_mpi.c collectives/transport_shm.c
endif
