# stream_ext: continuous views over streams inside PostgreSQL
#
# "make && make install" build and install into the server that PG_CONFIG belongs to.
# "make demo", "make test", "make lint" and "make bench" need neither a server nor its headers to
# begin with: they install what is missing and work in a private copy of PostgreSQL.
EXTENSION = stream_ext
MODULE_big = stream_ext
DATA = $(wildcard sql/stream_ext--*.sql)
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))

REGRESS = $(filter-out tail_reader,$(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql))))
REGRESS_OPTS = --inputdir=test --outputdir=. --load-extension=stream_ext

PG_CPPFLAGS = -I$(srcdir)/include $(RDKAFKA_CFLAGS)
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-clobbered -Wshadow=compatible-local

PG_CONFIG ?= pg_config
RDKAFKA_CFLAGS := $(shell pkg-config --cflags-only-I rdkafka 2>/dev/null)
RDKAFKA_LIBS := $(or $(shell pkg-config --libs rdkafka 2>/dev/null),-lrdkafka)
SHLIB_LINK += $(RDKAFKA_LIBS)

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

ifneq ($(wildcard $(PGXS)),)
# Bitcode for the JIT needs the clang that the server was built with.
ifeq ($(shell command -v "$$(sed -n 's/^CLANG = //p' $(dir $(PGXS))../Makefile.global)"),)
override with_llvm = no
endif
include $(PGXS)
$(OBJS) $(OBJS:.o=.bc): $(wildcard include/stream_ext/*.h include/stream_ext/*/*.h src/*/*.h)
else
all install:
	@echo "stream_ext: no PostgreSQL server headers found by PG_CONFIG=$(PG_CONFIG)" >&2; exit 1
endif

.PHONY: demo test lint bench
demo test lint bench:
	@+test/tools/$@
