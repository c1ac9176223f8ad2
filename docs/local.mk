# The manual page, installed; and the pages for readers of the source.
dist_man1_MANS = docs/rankflash.1 docs/rankflash-bench.1 docs/rankflash-synth.1
EXTRA_DIST += docs/batch.md docs/bench.md docs/performance.md docs/performance.json docs/cli.md docs/determinism.md docs/plan.md docs/scaling.md docs/slurm.md docs/synth.md \
	docs/how-to-backend.md docs/how-to-kernel.md docs/how-to-transport.md \
	docs/gpu.md docs/models.md docs/how-to-model.md docs/how-to-op.md
