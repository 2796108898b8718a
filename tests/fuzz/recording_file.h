/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Makes a recording from a fuzzer's input. First byte, modulo 4: 0: the rest is a file. 1: the rest
 * is a list of {type, flags, length (2 bytes), payload}, made into blocks with valid checksums,
 * which fuzzers do not find. 2 or 3: the rest is the input of tape.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "record/mtr/mtr_format.h"
#include "record/varint.h"
#include "tape.h"

static void put_all(int fd, const void *data, size_t len)
{
	if (write(fd, data, len) != (ssize_t)len)
		abort();
}

static void put_header(int fd)
{
	uint8_t h[MTR_FILE_HEADER];

	memcpy(h, MTR_MAGIC, MTR_MAGIC_SIZE);
	put_le32(h + 8, MTR_VERSION);
	put_le32(h + 12, MTR_BYTE_ORDER);
	put_all(fd, h, sizeof(h));
}

static void put_blocks(int fd, const uint8_t *p, size_t size)
{
	put_header(fd);
	while (size >= 4) {
		uint8_t h[MTR_BLOCK_HEADER];
		size_t len = (size_t)p[2] | (size_t)p[3] << 8;

		if (len > size - 4)
			len = size - 4;
		put_le32(h, p[0]);
		put_le32(h + 4, p[1]);
		put_le32(h + 8, (uint32_t)len);
		/* Length of a compressed block: from the zstd frame if it has one. */
		put_le32(h + 12, p[1] & MTR_ZSTD && len > 8 ? p[4 + 5] : (uint32_t)len);
		put_le32(h + 16, crc32c(p + 4, len));
		put_le32(h + 20, crc32c(h, 20));
		put_all(fd, h, sizeof(h));
		put_all(fd, p + 4, len);
		p += 4 + len;
		size -= 4 + len;
	}
}

/* The recording's path, the same for every input. */
static char *recording_file(const uint8_t *data, size_t size)
{
	static char path[32];
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", 0);
	if (fd < 0 || ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		abort();
	if (data[0] & 2)
		put_tape(fd, data + 1, size - 1);
	else if (data[0] & 1)
		put_blocks(fd, data + 1, size - 1);
	else
		put_all(fd, data + 1, size - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* Bytes of the input before the recording. */
#ifndef RECORDING_AT
#define RECORDING_AT 0
#endif

/* Mutates bytes as libFuzzer does, or makes another tape. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	struct dice d = { .state = seed | 1ULL << 32 };
	size_t n;

	if (max_size < RECORDING_AT + 9 || roll(&d) % 4)
		return LLVMFuzzerMutate(data, size, max_size);
	for (; size < RECORDING_AT; size++)
		data[size] = (uint8_t)roll(&d);
	data[RECORDING_AT] = 2;
	for (n = RECORDING_AT + 1; n < max_size && n < RECORDING_AT + 9 + seed % 64; n++)
		data[n] = (uint8_t)(roll(&d) >> 24);
	return n;
}
