# stream_ext: continuous views over streams inside PostgreSQL
EXTENSION = stream_ext
MODULE_big = stream_ext
DATA = $(wildcard sql/stream_ext--*.sql)
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))

PG_CPPFLAGS = -I$(srcdir)/include
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-clobbered -Wshadow=compatible-local

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS): $(wildcard include/stream_ext/*.h include/stream_ext/*/*.h)
