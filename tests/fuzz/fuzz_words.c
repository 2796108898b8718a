/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: parsers and printers of small texts. The first byte chooses: terminal text,
 * JSON output, a command line, line tables, notes of static probes and their arguments, mangled
 * names, lists of visible devices.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "inspect/pytensor.h"
#include "inspect/gpu_holders.h"
#include "inspect/nvml.h"
#include "inspect/python.h"
#include "inspect/elf.h"
#include "model/words.h"
#include "record/stream.h"
#include "last_python.h"
#include "terminal.h"

/* Texts of /proc, of a process that holds a GPU. */
static void read_holder(const char *s)
{
	struct holder_process p = { .pid = 1 };
	pid_t session;

	holder_process__parse_stat(&p, s, &session);
	holder_process__set_job(&p, s, s, strlen(s) + 1);
	for (const char *c = p.job; *c; c++)
		if ((unsigned char)*c < ' ')
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(const char *s, size_t len)
{
	static char out[REPORT_TEXT], again[REPORT_TEXT];
	size_t room = len ? 1 + (uint8_t)s[0] * 8u : 1;

	text__clean(out, room, s, len);
	if (strlen(out) >= room || !terminal__harmless(out, strlen(out)) ||
	    text__width(out) > strlen(out))
		abort();
	words__cut(out, room % 40 + 4);
	if (!terminal__harmless(out, strlen(out)) || text__width(out) > room % 40 + 4)
		abort();
	text__clean(out, sizeof(out), s, len);
	words__cut_front(out, room % 40 + 4);
	if (!terminal__harmless(out, strlen(out)) || text__width(out) > room % 40 + 4)
		abort();
	again[text__utf8(again, sizeof(again) - 1, s, len)] = '\0';
}

static void write_json(const char *s)
{
	size_t n = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &n);
	struct json *j = json__new(f, s[0] & 1);
	json_t *doc;

	json__open_object(j, NULL);
	json__string(j, s, s);
	json__open_array(j, "list");
	json__string(j, NULL, s);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	fclose(f);
	doc = json_loadb(text, n, 0, NULL);
	if (!doc || strstr(text, "</"))
		abort();
	json_decref(doc);
	free(text);
}

static void read_cmdline(const char *s)
{
	struct facts *f = facts__new();
	char **argv;

	if (f && !facts__set(f, "cmdline", s)) {
		argv = words__cmdline(f);
		for (size_t i = 0; argv && argv[i]; i++) {
			if (i >= 4096)
				abort();
			clean(argv[i], strlen(argv[i]));
		}
		words__free_cmdline(argv);
	}
	facts__free(f);
}

static void read_notes(const uint8_t *data, size_t size)
{
	struct usdt v[4];
	size_t n = usdt__notes(data, size, "pytorch", "malloc", v, 4);

	if (n > 4)
		abort();
	for (size_t i = 0; i < n; i++) {
		if (!memchr(v[i].args, '\0', sizeof(v[i].args)))
			abort();
	}
}

static void read_args(const char *s)
{
	struct mt_usdt_arg v[MT_ASKED_ARGS];

	if (usdt__args(s, v, MT_ASKED_ARGS))
		return;
	for (size_t i = 0; i < MT_ASKED_ARGS; i++) {
		/* the kernel side shifts by `size` and reads the register at offset `reg` */
		if ((v[i].size != 1 && v[i].size != 2 && v[i].size != 4 && v[i].size != 8) ||
		    v[i].reg > 160)
			abort();
	}
}

static void read_devices(const char *s)
{
	static const char *const uuid[] = { "GPU-0123", "GPU-0145", "GPU-8" };
	unsigned order[NVML_DEVICES_MAX];
	int n = nvml__order(s, uuid, 3, s[0] & 1, order);

	if (n < -1 || n > 3)
		abort();
	for (int i = 0; i < n; i++) {
		if (order[i] > 2)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s, name[64];

	if (!size || size > 2000)
		return 0;
	s = calloc(1, size);
	if (!s)
		abort();
	memcpy(s, data + 1, size - 1);
	switch (data[0] % 8) {
	case 0:
		clean(s, size - 1);
		break;
	case 1:
		write_json(s);
		break;
	case 2:
		read_cmdline(s);
		break;
	case 3:
		for (int minor = 8; minor <= LAST_MINOR; minor++) {
			for (int32_t at = -2; at < 64; at++)
				(void)pyline__find(minor, data + 1, size - 1, 7, at);
			(void)pyline__find(minor, data + 1, size - 1, UINT32_MAX, INT32_MAX);
		}
		break;
	case 4:
		read_notes(data + 1, size - 1);
		break;
	case 5:
		read_args(s);
		break;
	case 6:
		if (autograd_node__plain_name(s, name, sizeof(name)) &&
		    !memchr(name, '\0', sizeof(name)))
			abort();
		break;
	case 7:
		read_devices(s);
		read_holder(s);
		break;
	}
	free(s);
	return 0;
}
