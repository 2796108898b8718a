/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/inside_sites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "target/insn.h"

#define BREAKPOINT 0xcc
#define INSN_MAX 15
#define WAY_BACK 14 /* bytes of jmp *0(%rip) and its address */

int inside_sites__open(const struct inside_memory *m)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)m->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int put(int fd, uint64_t addr, const void *buf, size_t len)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)addr);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

static int get(int fd, uint64_t addr, void *buf, size_t len)
{
	ssize_t n = pread(fd, buf, len, (off_t)addr);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

/* Where the displacement of an operand that is relative to the instruction's end lies in it; 0: it has none. */
static size_t relative_operand(const uint8_t *code, const struct insn *in)
{
	static const uint8_t opcodes[] = { [INSN_MAP_1] = 1, [INSN_MAP_0F] = 2, [INSN_MAP_0F38] = 3, [INSN_MAP_0F3A] = 3 };
	size_t at = in->prefixes;

	if (!in->has_modrm || in->modrm >> 6 || (in->modrm & 7) != 5)
		return 0;
	if (in->map == INSN_MAP_EVEX)
		at += 5;
	else if (in->map == INSN_MAP_VEX)
		at += code[at] == 0xc5 ? 3 : 4;
	else
		at += (in->rex ? 1 : 0) + opcodes[in->map];
	return at + 1; /* behind ModRM */
}

static int plan_copy(const uint8_t *code, const struct insn *in, uint64_t addr, uint64_t slot, struct mt_inside_site *s,
		     uint8_t *copy)
{
	size_t at = relative_operand(code, in);
	uint64_t back = addr + in->length;
	int64_t moved;
	int32_t disp;

	if (in->length + WAY_BACK > MT_INSIDE_SLOT)
		return -ENOTSUP;
	memset(copy, BREAKPOINT, MT_INSIDE_SLOT);
	memcpy(copy, code, in->length);
	if (at) {
		if (at + sizeof(disp) > in->length)
			return -ENOTSUP;
		memcpy(&disp, code + at, sizeof(disp));
		moved = (int64_t)(addr - slot) + disp;
		if (moved != (int32_t)moved)
			return -ERANGE;
		disp = (int32_t)moved;
		memcpy(copy + at, &disp, sizeof(disp));
	}
	memcpy(copy + in->length, "\xff\x25\0\0\0\0", 6);
	memcpy(copy + in->length + 6, &back, sizeof(back));
	s->way = MT_INSIDE_SLOT_RUN;
	s->target = slot;
	return 0;
}

static bool is_endbr(const struct insn *in)
{
	return in->map == INSN_MAP_0F && in->opcode == 0x1e && in->pf3 && in->modrm == 0xfa;
}

static bool is_push(const struct insn *in)
{
	return in->map == INSN_MAP_1 && in->opcode >= 0x50 && in->opcode <= 0x57 && !in->prefixes;
}

static bool is_plain_jcc(const struct insn *in)
{
	return (in->map == INSN_MAP_1 && in->opcode >= 0x70 && in->opcode <= 0x7f) ||
	       (in->map == INSN_MAP_0F && in->opcode >= 0x80 && in->opcode <= 0x8f);
}

int inside_sites__plan(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot, struct mt_inside_site *s, uint8_t *copy)
{
	struct insn in;

	if (insn__decode(code, n, &in))
		return -ENOTSUP;
	s->length = in.length;
	s->original = code[0];
	s->operand = 0;
	s->target = addr + in.length + (int64_t)in.relative;
	if (insn__is_nop(&in) || is_endbr(&in)) {
		s->way = MT_INSIDE_SKIP;
		return 0;
	}
	if (is_push(&in)) {
		s->way = MT_INSIDE_PUSH;
		s->operand = (in.opcode & 7) | (in.rex & 1) << 3;
		return 0;
	}
	switch (in.flow) {
	case INSN_NEXT:
	case INSN_JMP_INDIRECT:
		return plan_copy(code, &in, addr, slot, s, copy);
	case INSN_JMP:
		s->way = MT_INSIDE_JUMP;
		return 0;
	case INSN_CALL:
		s->way = MT_INSIDE_CALL;
		return 0;
	case INSN_JCC:
		s->way = MT_INSIDE_BRANCH;
		s->operand = in.opcode & 15;
		return is_plain_jcc(&in) ? 0 : -ENOTSUP;
	case INSN_RET:
		s->way = MT_INSIDE_RET;
		return in.opcode == 0xc3 ? 0 : -ENOTSUP;
	default:
		return -ENOTSUP;
	}
}

/* The site of an address, or the free one where it would be. NULL: there are enough. *used: so many are. */
static struct mt_inside_site *find(struct mt_inside *at, uint64_t addr, size_t *used)
{
	struct mt_inside_site *found = NULL;
	uint32_t i, from = mt_inside_hash(addr);

	*used = 0;
	for (i = 0; i < MT_INSIDE_SITES; i++)
		*used += at->site[i].addr != 0;
	for (i = 0; i < MT_INSIDE_SITES && !found; i++) {
		struct mt_inside_site *s = &at->site[(from + i) % MT_INSIDE_SITES];

		if (!s->addr || s->addr == addr)
			found = s;
	}
	return found && (found->addr || *used < MT_INSIDE_SITES / 2) ? found : NULL;
}

static int make_site(struct inside_memory *m, int fd, struct mt_inside_site *s, uint64_t addr, size_t used)
{
	uint8_t code[INSN_MAX] = { 0 }, copy[MT_INSIDE_SLOT];
	size_t n = sizeof(code), i;
	uint64_t slot = 0;
	int err;

	/* It may be the last one of what is mapped. */
	while ((err = get(fd, addr, code, n)) && n > 1)
		n--;
	if (err)
		return err;
	if (code[0] == BREAKPOINT)
		return -EBUSY;
	err = -ERANGE;
	for (i = 0; i < 2 && err == -ERANGE; i++) {
		slot = m->at->slots[i] + used * MT_INSIDE_SLOT;
		if (m->at->slots[i])
			err = inside_sites__plan(code, n, addr, slot, s, copy);
	}
	if (!err && s->way == MT_INSIDE_SLOT_RUN)
		err = used >= MT_INSIDE_SLOTS ? -ENOSPC : put(fd, slot, copy, sizeof(copy));
	if (err)
		return err;
	memset(s->at, 0, sizeof(s->at));
	__atomic_store_n(&s->addr, addr, __ATOMIC_RELEASE);
	return 0;
}

int inside_sites__add(struct inside_memory *m, int fd, uint64_t addr, enum mt_inside_program program, uint64_t cookie)
{
	const uint8_t breakpoint = BREAKPOINT;
	struct mt_inside_site *s;
	size_t used, i;
	int err = 0;

	if (!addr)
		return -ENOENT;
	s = find(m->at, addr, &used);
	if (!s)
		return -ENOSPC;
	if (!s->addr)
		err = make_site(m, fd, s, addr, used);
	if (err)
		return err;
	for (i = 0; i < MT_INSIDE_AT_SITE && s->at[i].program; i++)
		;
	if (i == MT_INSIDE_AT_SITE)
		return -ENOSPC;
	s->at[i].cookie = cookie;
	__atomic_store_n(&s->at[i].program, program, __ATOMIC_RELEASE);
	err = put(fd, addr, &breakpoint, 1);
	if (err)
		__atomic_store_n(&s->at[i].program, 0, __ATOMIC_RELEASE);
	return err;
}

/* Takes out those of a site that are the one, or 0: any but the linker's; and the breakpoint where none is left. */
static void take_out(struct mt_inside_site *s, int fd, enum mt_inside_program program, uint64_t cookie)
{
	bool had = false, has = false;
	size_t i;

	for (i = 0; i < MT_INSIDE_AT_SITE; i++) {
		struct mt_inside_at *at = &s->at[i];
		bool is = program ? at->program == program && at->cookie == cookie : at->program != MT_INSIDE_LINKER;

		if (!at->program)
			continue;
		if (is)
			__atomic_store_n(&at->program, 0, __ATOMIC_RELEASE);
		had = had || is;
		has = has || !is;
	}
	/* A thread that has come to it meanwhile finds the site still, and what to do for the instruction. */
	if (had && !has && fd >= 0)
		put(fd, s->addr, &s->original, 1);
}

void inside_sites__remove(struct inside_memory *m, int fd, uint64_t addr, enum mt_inside_program program, uint64_t cookie)
{
	struct mt_inside_site *s;
	size_t used;

	s = find(m->at, addr, &used);
	if (s && s->addr)
		take_out(s, fd, program, cookie);
}

size_t inside_sites__clear(struct inside_memory *m)
{
	int fd = inside_sites__open(m);
	size_t i, taken = 0;
	uint8_t now;

	for (i = 0; i < MT_INSIDE_SITES; i++) {
		struct mt_inside_site *s = &m->at->site[i];

		if (!s->addr)
			continue;
		taken += s->at[0].program && fd >= 0 && !get(fd, s->addr, &now, 1) && now != BREAKPOINT;
		take_out(s, fd, 0, 0);
	}
	if (fd >= 0)
		close(fd);
	return taken;
}

int inside_sites__add_to(int fd, uint64_t addr, int n)
{
	uint16_t word;
	int err = get(fd, addr, &word, sizeof(word));

	word = (uint16_t)(word + n);
	return err ?: put(fd, addr, &word, sizeof(word));
}
