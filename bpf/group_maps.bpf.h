/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Maps of the followed processes, shared by all programs. The probes only read them. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MT_WATCHED_ROOM);
	__type(key, __u32);   /* process */
	__type(value, __u32); /* MT_GROUP() */
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MT_MEMBERS);
	__type(key, __u32);
	__type(value, struct mt_member);
} members SEC(".maps");
