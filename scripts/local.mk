# Scripts for users; part of the distribution.
EXTRA_DIST += scripts/check scripts/quickstart scripts/scaling scripts/setup.sh tests/lsan.supp
