# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What root runs so that another user can record: it needs no library of ours.
TOKEN := $(OUTPUT)/memtrace-bpf-token

$(TOKEN): $(OUTPUT)/obj/tools/token/token.o
	$(call msg,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(filter -static -s,$(PROGRAM_LDFLAGS)) -o $@ $^
