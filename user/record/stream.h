/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_STREAM_H
#define MT_RECORD_STREAM_H
/*
 * The record stream: what a capture produces and what every consumer (writer, model, live view,
 * exports) reads, from a live process or from a file alike. A stream is a struct dict that only
 * grows, key/value facts about target and capture, and events in the order in which the allocator
 * saw them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dict;

/* c10::DeviceType; the values are PyTorch's (c10/core/DeviceType.h). */
enum device_type { DEVICE_CPU = 0, DEVICE_CUDA = 1, DEVICE_HIP = 6, DEVICE_XPU = 12, DEVICE_PRIVATE = 20 };

struct device {
	uint8_t type; /* enum device_type */
	uint8_t index; /* 0 for the CPU, whatever the event said */
};

enum event_kind {
	EVENT_ALLOC = 1,
	EVENT_FREE = 2,
	EVENT_OOM = 3,	/* size: what was asked for */
	EVENT_STEP = 4, /* an optimizer's step ended */
	EVENT_CALL = 5, /* a root module was called; module says which */
	EVENT_LOST = 6, /* size: records dropped before this point since the last such event */
};

struct event {
	uint8_t kind; /* enum event_kind */
	uint8_t walk; /* enum mt_walk, for EVENT_ALLOC and EVENT_OOM */
	bool totals;  /* allocated and reserved are valid: the allocator's own, after this event */
	struct device device;
	uint32_t thread; /* dict thread number */
	uint32_t stack;	 /* dict stack number; 0: none (walk says why) */
	uint32_t module; /* EVENT_CALL */
	uint64_t time;	 /* ns since the capture's start; not sorted across threads, off by < 1 ms */
	uint64_t addr;
	uint64_t size; /* bytes, rounded as handed out; 0 for a free whose allocator does not say it */
	uint64_t allocated, reserved;
};

/* Facts. Keys are lower_snake_case ASCII; values UTF-8. Later values of a key replace earlier ones. */
struct facts;
struct facts *facts__new(void);
void facts__free(struct facts *f);
int facts__set(struct facts *f, const char *key, const char *value);
/* 0, -ENOMEM, -EINVAL (key), -E2BIG (a value over 1 MiB, over 4096 facts, over 4 MiB in all); as facts__set. */
int facts__setf(struct facts *f, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *facts__get(const struct facts *f, const char *key); /* NULL: not there; owned by f */
size_t facts__count(const struct facts *f);
/* The i-th fact in order of first setting. */
void facts__at(const struct facts *f, size_t i, const char **key, const char **value);
/*
 * Keys in use. Target: pid, comm, cmdline (JSON array), python, torch, cuda_runtime, allocator, exe.
 * Capture: version, start (RFC 3339), kernel, attached_at ("start" | "live").
 * At the end, and about every second as far as they are known by then: duration_ns, events, lost,
 * counter.<name> (from the kernel side: hits, walks by outcome, losses), stop_reason
 * ("duration" | "steps" | "signal" | "target exited" | "exec" | "max-size" | "max-events"), dropped_events.
 */

/* A consumer of a stream. Each call returns 0 or -errno; the producer stops on an error. */
struct sink {
	int (*event)(struct sink *s, const struct event *e);
	/* Facts changed, or time passed with no event: now is ns since the start. May be NULL. */
	int (*tick)(struct sink *s, uint64_t now);
};

#endif
