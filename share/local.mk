# The demo pair: what runs when no model is given.
demodir = $(pkgdatadir)/factbook-tiny
dist_demo_DATA = share/factbook-tiny/factbook-tiny-Q8_0.gguf share/factbook-tiny/factbook-tiny-DFlash2-Q8_0.gguf \
	share/factbook-tiny/README.md
