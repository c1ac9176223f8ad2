# Scripts for users; part of the distribution.
EXTRA_DIST += scripts/check scripts/performance scripts/quickstart scripts/scaling scripts/setup.sh scripts/speed.sh tests/lsan.supp

# Slurm's batch files, installed beside the demo pair.
slurmdir = $(pkgdatadir)/slurm
dist_slurm_SCRIPTS = scripts/slurm/one-node.sbatch scripts/slurm/several-nodes.sbatch scripts/slurm/preemptible-batch.sbatch
