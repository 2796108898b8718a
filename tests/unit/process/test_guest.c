/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Processes that run programs under a kernel of their own, by what they show on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/container.h"
#include "inspect/proc.h"

static enum guest_kind judge(const char *exe, const char *words, const char *maps_text)
{
	char cmdline[1024];
	enum guest_kind kind;
	struct maps maps;
	size_t i, len = strlen(words);

	for (i = 0; i <= len; i++)
		cmdline[i] = words[i] == ' ' ? '\0' : words[i];
	assert_int_equal(maps__parse(maps_text, strlen(maps_text), &maps), 0);
	kind = guest__judge(exe, cmdline, len + 1, &maps);
	maps__free(&maps);
	return kind;
}

#define PYTHON_MAPS "00400000-0041f000 r-xp 00000000 fe:00 247702 /usr/bin/python3.11\n"
/* As runsc 20221219 shows them: of a sandbox, and of an address space of its programs. */
#define STUB_MAPS                                                                                  \
	"7fffffff0000-7fffffff1000 r-xp 00000000 00:00 0 \n"                                       \
	"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"
#define SPACE_MAPS                                                                                 \
	"00400000-0041f000 r--s 00003000 00:01 1654701 /memfd:runsc-memory (deleted)\n"            \
	"0041f000-006d1000 r-xs 0001f000 fe:00 247702 /root/usr/bin/python3.11\n"

static void test_gvisor(void **state)
{
	assert_int_equal(judge("/usr/bin/runsc",
			       "runsc-sandbox --root=/run/x boot --attached --bundle /x",
			       STUB_MAPS),
			 GUEST_GVISOR);
	assert_int_equal(judge("", "runsc-gofer --root=/run/x gofer --bundle /x", ""),
			 GUEST_GVISOR);
	assert_int_equal(judge("/usr/local/bin/runsc", "", STUB_MAPS), GUEST_GVISOR);
	assert_int_equal(judge("", "", SPACE_MAPS), GUEST_GVISOR);
	assert_non_null(strstr(guest__text(GUEST_GVISOR), "gVisor"));
}

static void test_machines(void **state)
{
	static const char *const kata[] = {
		"/usr/bin/qemu-system-x86_64 -name sandbox-b66fcd8 -qmp "
		"unix:/run/vc/vm/b66fcd8/qmp.sock,server,nowait",
		"/opt/kata/bin/qemu-virtiofs-system-x86_64 -name sandbox-1",
		"/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/1/clh-api.sock",
		"/opt/kata/bin/firecracker --api-sock /run/kata/1/root/fc.sock",
		"/usr/local/bin/containerd-shim-kata-v2 -namespace k8s.io -id 1",
		"/usr/libexec/kata-qemu/virtiofsd --fd=3 -o "
		"source=/run/kata-containers/shared/sandboxes/1/shared",
	};

	for (size_t i = 0; i < sizeof(kata) / sizeof(kata[0]); i++)
		assert_int_equal(judge("", kata[i], ""), GUEST_KATA);
	assert_int_equal(judge("", "/usr/bin/qemu-system-aarch64 -M virt", ""), GUEST_VM);
	assert_int_equal(judge("/usr/bin/firecracker", "x", ""), GUEST_VM);
}

static void test_others(void **state)
{
	char cmdline[6] = { 'p', 'y', 't', 'h', 'o', 'n' }; /* no NUL at the end */
	const struct maps none = { 0 };

	assert_int_equal(judge("/usr/bin/python3.11", "python3 train.py --name kata", PYTHON_MAPS),
			 GUEST_NONE);
	assert_int_equal(judge("/usr/bin/python3.11", "python3 runsc-sandbox.py", PYTHON_MAPS),
			 GUEST_NONE);
	assert_int_equal(judge("/usr/bin/qemu-x86_64", "qemu-x86_64 ./a.out", ""), GUEST_NONE);
	assert_int_equal(judge("", "/usr/libexec/virtiofsd --socket-path=/x", ""), GUEST_NONE);
	assert_int_equal(guest__judge("", cmdline, sizeof(cmdline), &none), GUEST_NONE);
	assert_int_equal(guest__judge("", "", 0, &none), GUEST_NONE);
	assert_string_equal(guest__text(GUEST_NONE), "");
}

static void test_long_arguments(void **state)
{
	static char cmdline[100000];
	const struct maps none = { 0 };

	memset(cmdline, 'q', sizeof(cmdline));
	assert_int_equal(guest__judge("", cmdline, sizeof(cmdline), &none), GUEST_NONE);
}

static void test_inside_gvisor(void **state)
{
	assert_true(guest__in_gvisor("4.4.0", "#1 SMP Sun Jan 10 15:06:54 PST 2016"));
	assert_true(guest__in_gvisor("5.15.0-gvisor", "#1 SMP something newer"));
	assert_false(guest__in_gvisor("4.4.0", "#1 SMP Debian 4.4.6-1"));
	assert_false(guest__in_gvisor("6.18.44", "#1 SMP PREEMPT_DYNAMIC"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gvisor),	      cmocka_unit_test(test_machines),
		cmocka_unit_test(test_others),	      cmocka_unit_test(test_long_arguments),
		cmocka_unit_test(test_inside_gvisor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
