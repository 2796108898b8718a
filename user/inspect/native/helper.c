/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/wire.h"

#include <ctype.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "base/io.h"
#include "base/text.h"
#include "inspect/native/go_table.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1 /* its own calls and its shadow memory need more than we allow */
#else
#define SANITIZED 0
#endif

#ifdef __x86_64__
#define MACHINE AUDIT_ARCH_X86_64
#else
#define MACHINE AUDIT_ARCH_AARCH64
#endif

#define MEMORY_MAX (8ULL << 30) /* address space: files are mapped as a whole */

/* System calls that the helper may use: for memory, and for descriptors that it has. */
static const int allowed[] = {
	SYS_read,	  SYS_write,	     SYS_pread64, SYS_readv,	    SYS_recvmsg,
	SYS_recvfrom,	  SYS_sendmsg,	     SYS_sendto,  SYS_close,	    SYS_fstat,
	SYS_lseek,	  SYS_mmap,	     SYS_munmap,  SYS_mremap,	    SYS_mprotect,
	SYS_madvise,	  SYS_brk,	     SYS_futex,	  SYS_rt_sigreturn, SYS_exit,
	SYS_exit_group,	  SYS_clock_gettime, SYS_getpid,  SYS_gettid,	    SYS_restart_syscall,
	SYS_rt_sigaction, SYS_rt_sigprocmask
};
#define N_ALLOWED (sizeof(allowed) / sizeof(*allowed))

/* Limits this process to the allowed system calls. 0 or -errno. */
static int filter_calls(void)
{
	struct sock_filter code[4 + N_ALLOWED + 2];
	struct sock_fprog prog = { .filter = code };
	unsigned short len = 0;

	code[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						   offsetof(struct seccomp_data, arch));
	code[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
	code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);
	/* The x32 ABI has the same arch, but other numbers, which are not in the list. */
	code[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						   offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < N_ALLOWED; i++)
		code[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							   (unsigned)allowed[i],
							   (unsigned char)(N_ALLOWED - i), 0);
	code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = len;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) ? -errno : 0;
}

/* The kernel ends this process first if memory is short. */
static void offer_to_oom_killer(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	io__write(fd, "1000", 4);
	close(fd);
}

int helper__confine(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	struct rlimit memory = { MEMORY_MAX, MEMORY_MAX }, no_core = { 0, 0 };

	offer_to_oom_killer();
	if (setrlimit(RLIMIT_CORE, &no_core) ||
	    (!SANITIZED && (setrlimit(RLIMIT_AS, &memory) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))))
		return -errno;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none))
		return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return SANITIZED ? 0 : filter_calls();
}

/* ---- names ---- */

#define SYMBOL_MAX 4096 /* bytes of a name to demangle, which bounds the demangler's work */

/* A function of the C++ library's ABI. The caller frees the result. */
char *__cxa_demangle(const char *mangled, char *buf, size_t *size, int *status);

/* Returns the first suffix that a compiler has added to a name: ".isra.0", ".cold", ".llvm.123", or
 * a number: ".123". NULL: none. Other points are part of the name, as in Go's "runtime.mmap", and
 * so is one at its begin. */
static const char *find_compiler_suffix(const char *s)
{
	static const struct {
		const char *name;
		bool number; /* a number follows */
	} suffixes[] = { { "isra", true },	{ "part", true },  { "constprop", true },
			 { "clone", true },	{ "llvm", true },  { "lto_priv", true },
			 { "__uniq", true },	{ "cold", false }, { "localalias", false },
			 { "resolver", false }, { "abi0", false }, { "abiinternal", false } };
	size_t len;

	for (s = *s ? strchr(s + 1, '.') : NULL; s; s = strchr(s + 1, '.')) {
		len = strcspn(s + 1, ".");
		if (isdigit((unsigned char)s[1]))
			return s;
		for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
			if (len == strlen(suffixes[i].name) &&
			    !strncmp(s + 1, suffixes[i].name, len) &&
			    (!suffixes[i].number ||
			     (s[1 + len] == '.' && isdigit((unsigned char)s[2 + len]))))
				return s;
	}
	return NULL;
}

/* Returns the length of a name without the suffixes of compilers, also " [clone .part.0]", and
 * without its version ("@GLIBC_2.34"). */
static size_t length_without_suffix(const char *s)
{
	const char *suffix = find_compiler_suffix(s);
	const char *clone = strstr(s, " [clone ");
	const char *version = strchr(s, '@');

	if (version)
		return (size_t)(version - s);
	if (clone)
		return (size_t)(clone - s);
	return suffix && !strchr(s, '(') ? (size_t)(suffix - s) : strlen(s);
}

/* Finds the opening bracket that belongs to the closing one at end[-1]. NULL: there is none. */
static char *find_open_bracket(char *s, char *end)
{
	int depth = 0;

	while (end-- > s) {
		depth += (*end == ')') - (*end == '(');
		if (!depth)
			return end;
	}
	return NULL;
}

/* Cuts a function's parameters and qualifiers off, such as "(int) const". */
static void cut_parameters(char *name)
{
	static const char *const qualifiers[] = { " const", " volatile", " &&", " &", "&&", "&" };
	size_t len = strlen(name), i = 0, qualifier_len;
	char *bracket;

	while (i < sizeof(qualifiers) / sizeof(*qualifiers)) {
		qualifier_len = strlen(qualifiers[i]);
		if (len > qualifier_len && !strcmp(name + len - qualifier_len, qualifiers[i])) {
			len -= qualifier_len;
			i = 0;
			continue;
		}
		i++;
	}
	if (!len || name[len - 1] != ')')
		return;
	bracket = find_open_bracket(name, name + len);
	/* The bracket is not of parameters in "(anonymous namespace)" and "f()::operator()". */
	if (bracket && bracket > name && bracket[-1] != ':' &&
	    !text__starts(bracket, "(anonymous") &&
	    !(bracket - name >= 8 && text__starts(bracket - 8, "operator")))
		*bracket = '\0';
}

/* Cuts the return type before the name off. Only names of templates have one. */
static void cut_return_type(char *text)
{
	char *name = text;
	int depth = 0;

	if (strstr(text, "operator"))
		return;
	for (char *at = text; *at; at++) {
		if (strchr("<({", *at))
			depth++;
		else if (strchr(">)}", *at))
			depth--;
		if (*at == ' ' && !depth)
			name = at + 1;
	}
	memmove(text, name, strlen(name) + 1);
}

/* Cuts off the hash that ends Rust's older names: "::h" and 16 digits. False: s has none, so it is
 * no name of Rust. */
static bool cut_rust_hash(char *s)
{
	size_t len = strlen(s);

	if (len <= 19 || !text__starts(s + len - 19, "::h"))
		return false;
	for (size_t i = len - 16; i < len; i++)
		if (!isxdigit((unsigned char)s[i]))
			return false;
	s[len - 19] = '\0';
	return true;
}

/* Replaces "$LT$" by "<" and so on in Rust's older names, and ".." by "::". */
static void undo_rust_escapes(char *text)
{
	static const struct {
		const char *from;
		char to;
	} escapes[] = { { "$LT$", '<' },  { "$GT$", '>' },  { "$RF$", '&' },   { "$LP$", '(' },
			{ "$RP$", ')' },  { "$BP$", '*' },  { "$C$", ',' },    { "$u20$", ' ' },
			{ "$u7b$", '{' }, { "$u7d$", '}' }, { "$u27$", '\'' }, { "$u5b$", '[' },
			{ "$u5d$", ']' } };
	char *to = text;

	for (const char *at = text; *at;) {
		size_t i, n = sizeof(escapes) / sizeof(*escapes);

		for (i = 0; i < n && strncmp(at, escapes[i].from, strlen(escapes[i].from)); i++)
			;
		if (i < n) {
			*to++ = escapes[i].to;
			at += strlen(escapes[i].from);
		} else if (at[0] == '.' && at[1] == '.') {
			*to++ = ':';
			*to++ = ':';
			at += 2;
		} else {
			*to++ = *at++;
		}
	}
	*to = '\0';
}

char *helper__demangle(const char *symbol, char *buf, size_t size)
{
	char *plain = NULL;
	int status;

	if (text__starts(symbol, "_Z") && strlen(symbol) < SYMBOL_MAX)
		plain = __cxa_demangle(symbol, NULL, NULL, &status);
	if (!plain) {
		/* A symbol may be far longer than buf: read only as much of it as fits. */
		snprintf(buf, size, "%.*s", (int)(size < INT32_MAX ? size - 1 : 0), symbol);
		buf[length_without_suffix(buf)] = '\0';
		return buf;
	}
	plain[length_without_suffix(plain)] = '\0';
	if (cut_rust_hash(plain)) {
		undo_rust_escapes(plain);
	} else {
		cut_parameters(plain);
		cut_return_type(plain);
	}
	snprintf(buf, size, "%s", plain);
	free(plain);
	return buf;
}

/* ---- requests ---- */

#define CANDIDATES 8		  /* files with debug information that are tried */
#define UNITS_MAX 200000	  /* compilation units that are searched for an address */
#define SCOPES_DEPTH 64		  /* nested namespaces, types, functions and blocks */
#define CHECKSUM_MAX (1ULL << 30) /* bytes of a file above which it is taken for another one */
#define THREAD 1		  /* ID of the only thread that libdwfl knows */
#define NAMED 4096		  /* addresses whose names are kept */
#define GO_MODULES 4		  /* modules whose table of Go is known */

union request {
	struct wire_hdr h;
	struct wire_unwind unwind;
	uint8_t bytes[sizeof(struct wire_unwind) + NATIVE_STACK_MAX];
};

/* Receives a message, and in *passed its descriptor (-1: none). Returns the message's length. 0:
 * the other end is closed, or an error. */
static ssize_t receive(int fd, void *buf, size_t size, int *passed)
{
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { buf, size };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header;
	ssize_t len;

	*passed = -1;
	do
		len = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	while (len < 0 && errno == EINTR);
	for (header = len < 0 ? NULL : CMSG_FIRSTHDR(&message); header;
	     header = CMSG_NXTHDR(&message, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
			memcpy(passed, CMSG_DATA(header), sizeof(*passed));
	return len < 0 ? 0 : len;
}

/* Requests a file and waits for the answer. Returns its descriptor, or -1 if there is no such file.
 * Ends the process if the other end is closed. */
static int ask_file(int fd, unsigned kind, uint32_t candidate, uint32_t module,
		    const uint8_t *build_id, size_t build_id_len, const char *name)
{
	struct wire_need need = { .h = { kind, candidate }, .module = module };
	struct wire_hdr answer;
	int passed;

	if (build_id_len <= sizeof(need.build_id) && build_id_len) {
		need.build_id_len = (uint32_t)build_id_len;
		memcpy(need.build_id, build_id, build_id_len);
	}
	if (name && strlen(name) < sizeof(need.name))
		strcpy(need.name, name);
	if (send(fd, &need, sizeof(need), MSG_NOSIGNAL) != sizeof(need) ||
	    receive(fd, &answer, sizeof(answer), &passed) != sizeof(answer))
		_exit(0);
	return passed;
}

/* ---- unwinding by libdw ---- */

/* Name and place of a function. Texts belong to libdw; NULL: not known. */
struct scope {
	const char *function, *file;
	int line;
};

/* The names of the code at an address. */
struct named {
	Dwarf_Addr in;	    /* the address */
	const char *symbol; /* belongs to libdw; NULL: none */
	GElf_Off offset;    /* bytes of `in` from the symbol's start */
	/* The inlined functions at the address, innermost first, then the function that contains
	 * them; owned. NULL: this entry is empty. */
	struct scope *scopes;
	size_t n; /* number of scopes, at least 1 */
};

/* The table of Go in a module. */
struct go_module {
	Dwfl_Module *mod; /* NULL: this entry is empty */
	struct go_table table;
	bool found;
};

struct unwind {
	int fd;
	Dwfl *dwfl;
	/* The stack being unwound. */
	const struct native_regs *regs;
	const uint8_t *stack;
	size_t size;
	bool cut;  /* a word outside the copied stack was needed */
	bool left; /* the innermost frames of a goroutine come next, which are on another stack */
	struct wire_frames *out;
	struct wire_module *modules; /* modules of the last WIRE_MODULES; owned */
	uint32_t n_modules;
	struct go_module go[GO_MODULES]; /* the tables of the last modules that were looked up */
	unsigned next_go;
	struct named named[NAMED]; /* cache by hash of the address, for these modules */
};

/* The unwinder, for callbacks that get no argument from libdw. The helper has one thread. */
static struct unwind *current;

/* ---- files ---- */

/* Returns a module's index in unwind.modules. set_modules() stores the index + 1 in its userdata. */
static uint32_t module_of(void **userdata)
{
	return *userdata ? (uint32_t)(uintptr_t)*userdata - 1 : WIRE_NO_MODULE;
}

/* libdwfl's callback: returns a descriptor of a module's file, which the parent process opens; -1:
 * none. */
static int find_elf(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr base,
		    char **file_name, Elf **elf)
{
	int fd = ask_file(current->fd, WIRE_NEED_ELF, 0, module_of(userdata), /*build_id=*/NULL, 0,
			  NULL);

	(void)mod, (void)base, (void)elf;
	*file_name = strdup(name);
	return fd;
}

static bool has_build_id(int fd, const unsigned char *id, size_t len)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	const void *bytes = NULL;
	ssize_t n = elf ? dwelf_elf_gnu_build_id(elf, &bytes) : -1;
	bool same = n == (ssize_t)len && !memcmp(bytes, id, len);

	elf_end(elf);
	return same;
}

/* True if a file has the checksum that .gnu_debuglink wants. */
static bool has_checksum(int fd, GElf_Word want)
{
	uint8_t buf[65536];
	uLong sum = crc32(0, NULL, 0);
	uint64_t at = 0;
	ssize_t got;

	while ((got = pread(fd, buf, sizeof(buf), (off_t)at)) > 0 && at < CHECKSUM_MAX) {
		sum = crc32(sum, buf, (uInt)got);
		at += (uint64_t)got;
	}
	return !got && sum == want;
}

/* Returns a descriptor of the file with a module's debug information; -1: not found. Checks the
 * build ID of each candidate, or the checksum if the module has no build ID. */
static int find_debug(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr base,
		      const char *file_name, const char *link, GElf_Word checksum, char **found)
{
	const unsigned char *id = NULL;
	GElf_Addr at;
	int len = dwfl_module_build_id(mod, &id, &at), fd;

	(void)base, (void)file_name;
	if (len <= 0 && !link)
		return -1;
	for (uint32_t i = 0; i < CANDIDATES; i++) {
		fd = ask_file(current->fd, WIRE_NEED_DEBUG, i, module_of(userdata), id,
			      len > 0 ? (size_t)len : 0, link);
		if (fd < 0)
			continue;
		if (len > 0 ? has_build_id(fd, id, (size_t)len) : has_checksum(fd, checksum)) {
			*found = strdup(name);
			return fd;
		}
		close(fd);
	}
	return -1;
}

static const Dwfl_Callbacks callbacks = { .find_elf = find_elf, .find_debuginfo = find_debug };

/* Sets the mapped files. Files that stay at their addresses stay loaded. */
static void set_modules(struct unwind *unwind, const struct wire_module *modules, uint32_t n)
{
	Dwfl_Module *mod;
	void **userdata;
	char name[48];

	/* The map of a process changes often, its files seldom. */
	if (unwind->modules && n == unwind->n_modules &&
	    !memcmp(unwind->modules, modules, n * sizeof(*modules)))
		return;
	free(unwind->modules);
	unwind->n_modules = n;
	unwind->modules = malloc(n * sizeof(*modules) + 1);
	if (unwind->modules)
		memcpy(unwind->modules, modules, n * sizeof(*modules));
	for (size_t i = 0; i < NAMED; i++)
		free(unwind->named[i].scopes);
	memset(unwind->named, 0, sizeof(unwind->named));
	memset(unwind->go, 0, sizeof(unwind->go));
	dwfl_report_begin(unwind->dwfl);
	for (uint32_t i = 0; i < n; i++) {
		/* libdwfl keeps a module with the same name and place. */
		snprintf(name, sizeof(name), "%llx", (unsigned long long)modules[i].start);
		mod = dwfl_report_module(unwind->dwfl, name, modules[i].start, modules[i].end);
		if (mod && dwfl_module_info(mod, &userdata, NULL, NULL, NULL, NULL, NULL, NULL))
			*userdata = (void *)(uintptr_t)(i + 1);
	}
	dwfl_report_end(unwind->dwfl, NULL, NULL);
}

/* ---- the thread: callbacks of libdwfl ---- */

/* Returns THREAD, the only thread, then 0. arg becomes *thread_arg. */
static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	(void)dwfl;
	if (*thread_arg)
		return 0;
	*thread_arg = arg;
	return THREAD;
}

/* libdwfl's callback: there is one thread. */
static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	(void)dwfl;
	*thread_arg = arg;
	return tid == THREAD;
}

/* Reads a word of the copied stack. Beyond the copy, notes that the stack is cut. */
static bool read_stack(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *ret, void *arg)
{
	struct unwind *unwind = arg;
	uint64_t at = addr - unwind->regs->sp;

	(void)dwfl;
	if (addr < unwind->regs->sp || at > unwind->size || unwind->size - at < sizeof(*ret)) {
		unwind->cut = true;
		return false;
	}
	memcpy(ret, unwind->stack + at, sizeof(*ret));
	return true;
}

/* Gives libdwfl the registers of the innermost frame. */
static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	const struct native_regs *regs = ((const struct unwind *)arg)->regs;
	/* Numbers of DWARF registers, from the processors' ABIs. */
#ifdef __x86_64__
	const Dwarf_Word fp_sp[] = { regs->fp, regs->sp };

	if (!dwfl_thread_state_registers(thread, 6, 2, fp_sp) ||
	    !dwfl_thread_state_registers(thread, 16, 1, &regs->ip))
		return false;
#else
	const Dwarf_Word fp_lr_sp[] = { regs->fp, regs->lr, regs->sp };

	if (!dwfl_thread_state_registers(thread, 29, 3, fp_lr_sp))
		return false;
#endif
	dwfl_thread_state_register_pc(thread, regs->ip);
	return true;
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_stack,
	.set_initial_registers = set_registers,
};

/* Attaches the copied stacks to libdwfl as the process's only thread. */
static bool attach(struct unwind *unwind)
{
#ifdef __x86_64__
	const Elf64_Half machine = EM_X86_64;
#else
	const Elf64_Half machine = EM_AARCH64;
#endif
	/* libdwfl takes the machine from this ELF header. */
	static Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
						  ELFDATA2LSB, EV_CURRENT },
				     .e_type = ET_EXEC,
				     .e_version = EV_CURRENT,
				     .e_ehsize = sizeof(Elf64_Ehdr) };
	Elf *elf;

	header.e_machine = machine;
	elf = elf_memory((char *)&header, sizeof(header));
	return elf && dwfl_attach_state(unwind->dwfl, elf, THREAD, &thread_callbacks, unwind);
}

/* Creates the unwinder. fd: socket for requests of files. NULL: out of memory, or libdwfl failed. */
static struct unwind *new_unwind(int fd)
{
	struct unwind *unwind = calloc(1, sizeof(*unwind));

	if (!unwind)
		return NULL;
	elf_version(EV_CURRENT);
	unwind->fd = fd;
	unwind->dwfl = dwfl_begin(&callbacks);
	if (!unwind->dwfl)
		return NULL;
	current = unwind;
	set_modules(unwind, /*modules=*/NULL, 0);
	return attach(unwind) ? unwind : NULL;
}

/* ---- text of the answer ---- */

/* Adds a text to an answer. Returns its offset; 0, which is "": empty, or no room. Reuses the texts
 * of the last three frames. */
static uint32_t add_text(struct wire_frames *out, const char *text)
{
	size_t len = text ? strlen(text) : 0;
	uint32_t at = out->text;

	if (!len || len + 1 > sizeof(out->chars) - out->text)
		return 0;
	for (uint32_t i = out->h.n; i-- > 0 && i + 4 > out->h.n;) {
		const struct wire_frame *frame = &out->v[i];
		const uint32_t known[] = { frame->build_id, frame->function, frame->file };

		for (size_t k = 0; k < 3; k++)
			if (!strcmp(out->chars + known[k], text))
				return known[k];
	}
	memcpy(out->chars + at, text, len + 1);
	out->text += (uint32_t)len + 1;
	return at;
}

/* Adds the build ID in hexadecimal; 0: the file has none. */
static uint32_t add_build_id(struct wire_frames *out, Dwfl_Module *mod)
{
	char hex[2 * WIRE_BUILD_ID_MAX + 1];
	const unsigned char *id;
	GElf_Addr at;
	int len = dwfl_module_build_id(mod, &id, &at);

	if (len <= 0 || len > WIRE_BUILD_ID_MAX)
		return 0;
	for (int i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
	return add_text(out, hex);
}

static uint32_t add_name(struct wire_frames *out, const char *symbol)
{
	char name[1024];

	return symbol ? add_text(out, helper__demangle(symbol, name, sizeof(name))) : 0;
}

/* ---- names and lines ---- */

/* Finds the compilation unit of an address. Searches all units if libdw's table has none, because
 * not all compilers write that table. NULL: not found. */
static Dwarf_Die *find_unit(Dwfl_Module *mod, Dwarf_Addr pc, Dwarf_Addr *bias)
{
	Dwarf_Die *unit = dwfl_module_addrdie(mod, pc, bias), *next = NULL;
	unsigned n = 0;

	while (!unit && n++ < UNITS_MAX && (next = dwfl_module_nextcu(mod, next, bias)))
		if (dwarf_haspc(next, pc - *bias) == 1)
			unit = next;
	return unit;
}

/* Sets the file and line of an address. */
static void set_line(struct scope *scope, Dwarf_Die *unit, Dwarf_Addr at)
{
	Dwarf_Line *l = dwarf_getsrc_die(unit, at);

	if (!l)
		return;
	scope->file = dwarf_linesrc(l, NULL, NULL);
	if (dwarf_lineno(l, &scope->line))
		scope->line = 0;
}

/* Sets the file and line from which an inlined function was called. */
static void set_caller(struct scope *scope, Dwarf_Die *unit, Dwarf_Die *inlined)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file, line;
	Dwarf_Files *files;
	size_t n;

	if (dwarf_attr(inlined, DW_AT_call_line, &attribute) &&
	    !dwarf_formudata(&attribute, &line) && line <= INT32_MAX)
		scope->line = (int)line;
	if (dwarf_attr(inlined, DW_AT_call_file, &attribute) &&
	    !dwarf_formudata(&attribute, &file) && !dwarf_getsrcfiles(unit, &files, &n) && file < n)
		scope->file = dwarf_filesrc(files, file, NULL, NULL);
}

/* True if a name is one of Rust's newer ones, which are not demangled. */
static bool is_rust_v0(const char *symbol)
{
	return symbol && text__starts(symbol, "_R");
}

/* Returns the function's name for the linker, which has its namespace and type, unless only its
 * plain name can be read. */
static const char *read_name(Dwarf_Die *die)
{
	Dwarf_Attribute a;
	const char *name = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &a) ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &a))
		name = dwarf_formstring(&a);
	return name && !is_rust_v0(name) ? name : dwarf_diename(die);
}

/* Finds the function at an address, and the functions inlined in it, outermost first. Functions are
 * in namespaces and types, too. dwarf_getscopes() finds none in a unit with a function whose ranges
 * libdw cannot read, such as most units of Rust. Returns the number of dies. */
static size_t find_functions(Dwarf_Die *parent, Dwarf_Addr at, Dwarf_Die *dies, size_t n, int depth)
{
	Dwarf_Die die;
	size_t found;

	if (depth > SCOPES_DEPTH || dwarf_child(parent, &die))
		return n;
	do {
		switch (dwarf_tag(&die)) {
		case DW_TAG_subprogram:
		case DW_TAG_inlined_subroutine:
			if (dwarf_haspc(&die, at) != 1)
				continue;
			if (n < NATIVE_FRAMES_MAX)
				dies[n++] = die;
			return find_functions(&die, at, dies, n, depth + 1);
		case DW_TAG_lexical_block:
		case DW_TAG_try_block:
		case DW_TAG_catch_block:
			if (dwarf_haspc(&die, at) == 1)
				return find_functions(&die, at, dies, n, depth + 1);
			continue;
		case DW_TAG_namespace:
		case DW_TAG_module:
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
		case DW_TAG_enumeration_type:
			found = find_functions(&die, at, dies, n, depth + 1);
			if (found > n)
				return found;
		}
	} while (dwarf_siblingof(&die, &die) == 0);
	return n;
}

/* Fills the scopes of an address from a unit's debug information. scopes: NATIVE_FRAMES_MAX zeroed
 * scopes. Returns the number of scopes, at least 1. */
static size_t read_scopes(struct scope *scopes, Dwarf_Die *unit, Dwarf_Addr at)
{
	Dwarf_Die functions[NATIVE_FRAMES_MAX];
	size_t n = find_functions(unit, at, functions, 0, 0);

	set_line(&scopes[0], unit, at);
	if (!n)
		return 1;
	for (size_t i = 0; i < n; i++) {
		Dwarf_Die *function = &functions[n - 1 - i];

		scopes[i].function = read_name(function);
		if (i + 1 < n)
			set_caller(&scopes[i + 1], unit, function);
	}
	return n;
}

/* Returns the table of Go in a module. NULL: it has none. */
static const struct go_table *go_table_of(struct unwind *unwind, Dwfl_Module *mod)
{
	struct go_module *module = unwind->go;
	Dwarf_Addr bias;
	Elf *elf;

	for (; module < unwind->go + GO_MODULES; module++)
		if (module->mod == mod)
			return module->found ? &module->table : NULL;
	module = &unwind->go[unwind->next_go++ % GO_MODULES];
	elf = dwfl_module_getelf(mod, &bias);
	module->mod = mod;
	module->found = elf && go_table__open(elf, &module->table);
	return module->found ? &module->table : NULL;
}

/* Fills a scope from the table of Go. */
static void read_go_scope(struct unwind *unwind, Dwfl_Module *mod, Dwarf_Addr in,
			  struct scope *scope)
{
	const struct go_table *table = go_table_of(unwind, mod);
	struct go_place place;
	Dwarf_Addr bias;

	if (!table || !dwfl_module_getelf(mod, &bias) || !go_table__find(table, in - bias, &place))
		return;
	*scope = (struct scope){ place.function, place.file, place.line };
}

/*
 * Returns the names of an address, valid until the next call. NULL: out of memory. Keeps them in
 * unwind->named, because libdw searches the module's whole symbol table (20 ms for libtorch) and
 * the unit's whole tree (1 ms for an address of NCCL or CPython), and most stacks have the same
 * callers.
 */
static const struct named *name_address(struct unwind *unwind, Dwfl_Module *mod, Dwarf_Addr in)
{
	struct named *names = &unwind->named[(in ^ in >> 12 ^ in >> 24) % NAMED];
	struct scope found[NATIVE_FRAMES_MAX] = { 0 };
	Dwarf_Addr bias = 0;
	Dwarf_Die *unit;
	GElf_Sym sym;

	if (names->scopes && names->in == in)
		return names;
	free(names->scopes);
	*names = (struct named){ 0 };
	names->symbol = dwfl_module_addrinfo(mod, in, &names->offset, &sym, NULL, NULL, NULL);
	unit = find_unit(mod, in, &bias);
	names->n = unit ? read_scopes(found, unit, in - bias) : 1;
	if (!unit)
		read_go_scope(unwind, mod, in, &found[0]);
	names->scopes = malloc(names->n * sizeof(*names->scopes));
	if (!names->scopes)
		return NULL;
	memcpy(names->scopes, found, names->n * sizeof(*found));
	names->in = in;
	return names;
}

/* Adds a frame: a copy of `like` with the file and line of the scope. NULL: the answer is full. */
static struct wire_frame *next_frame(struct wire_frames *out, const struct wire_frame *like,
				     const struct scope *scope)
{
	struct wire_frame *frame;

	if (out->h.n == NATIVE_FRAMES_MAX)
		return NULL;
	frame = &out->v[out->h.n];
	*frame = *like;
	frame->file = add_text(out, scope->file);
	frame->line = scope->file && scope->line > 0 ? (uint32_t)scope->line : 0;
	out->h.n++;
	return frame;
}

/* Adds the frames of one address: the inlined functions, innermost first, then the function. pc:
 * the instruction or return address. in: an address within the instruction or call. */
static void add_frame(struct unwind *unwind, Dwarf_Addr pc, Dwarf_Addr in)
{
	static const struct scope unknown = { 0 };
	Dwfl_Module *mod = dwfl_addrmodule(unwind->dwfl, in);
	struct wire_frame like = { .at = pc, .module = WIRE_NO_MODULE }, *frame;
	const struct named *names;
	Dwarf_Addr bias = 0;
	const char *plain;
	void **userdata;
	bool symbol;

	if (!mod || !dwfl_module_getelf(mod, &bias)) {
		next_frame(unwind->out, &like, &unknown);
		return;
	}
	dwfl_module_info(mod, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
	like.module = module_of(userdata);
	like.at = pc - bias;
	like.build_id = add_build_id(unwind->out, mod);
	names = name_address(unwind, mod, in);
	for (size_t i = 0; names && i + 1 < names->n; i++) {
		frame = next_frame(unwind->out, &like, &names->scopes[i]);
		if (frame) {
			frame->inlined = 1;
			frame->function = add_name(unwind->out, names->scopes[i].function);
		}
	}
	frame = next_frame(unwind->out, &like, names ? &names->scopes[names->n - 1] : &unknown);
	if (!frame || !names)
		return;
	plain = names->scopes[names->n - 1].function;
	symbol = names->symbol && *names->symbol && !(plain && is_rust_v0(names->symbol));
	frame->function = add_name(unwind->out, symbol ? names->symbol : plain);
	frame->offset = symbol ? names->offset + (pc - in) : 0;
}

/* True if the last frame is Go's function that runs others on the thread's own stack. The frame
 * pointer is still the goroutine's there ("useful for stack unwinding", runtime/asm_amd64.s). */
static bool left_goroutine(const struct wire_frames *out)
{
	static const char name[] = "runtime.systemstack";
	const struct wire_frame *last = out->h.n ? &out->v[out->h.n - 1] : NULL;

	return last && !strncmp(out->chars + last->function, name, sizeof(name) - 1);
}

/* libdwfl's callback for each address of a stack. */
static int on_frame(Dwfl_Frame *state, void *arg)
{
	struct unwind *unwind = arg;
	bool interrupted;
	Dwarf_Addr pc;

	if (!dwfl_frame_pc(state, &pc, &interrupted) || !pc)
		return DWARF_CB_ABORT;
	if (unwind->out->h.n == NATIVE_FRAMES_MAX)
		return DWARF_CB_ABORT;
	/* A return address is after the call, which may be the function's last instruction. */
	add_frame(unwind, pc, interrupted ? pc : pc - 1);
	unwind->left = unwind->regs->n_far && left_goroutine(unwind->out);
	return unwind->left ? DWARF_CB_ABORT : DWARF_CB_OK;
}

/* Adds the frames of the goroutine. Returns whether they reach its first one. */
static bool add_far_frames(struct unwind *unwind)
{
	for (uint32_t i = 0; i < unwind->regs->n_far && unwind->out->h.n < NATIVE_FRAMES_MAX; i++)
		add_frame(unwind, unwind->regs->far[i], unwind->regs->far[i] - 1);
	return unwind->regs->n_far < NATIVE_FAR_MAX && unwind->out->h.n < NATIVE_FRAMES_MAX;
}

/* True if the stack ends in code of Go that is not the first of a thread or goroutine: the program
 * has no tables to unwind it. False before the goroutine's own frames were added. */
static bool lacks_tables_of_go(struct unwind *unwind)
{
	const struct wire_frames *out = unwind->out;
	const char *function = out->h.n ? out->chars + out->v[out->h.n - 1].function : "";
	Dwfl_Module *mod = dwfl_addrmodule(unwind->dwfl, unwind->regs->ip);

	return !unwind->left && mod && go_table_of(unwind, mod) &&
	       !text__starts(function, "runtime.goexit") &&
	       !text__starts(function, "runtime.mstart") && !text__starts(function, "_rt0_");
}

/* Unwinds by the frame pointers, which all functions of Go keep. Returns whether the stack is
 * whole. */
static bool follow_frame_pointers(struct unwind *unwind)
{
	uint64_t at = unwind->regs->fp - unwind->regs->sp, frame[2];

	unwind->out->h.n = 0;
	unwind->out->text = 1;
	add_frame(unwind, unwind->regs->ip, unwind->regs->ip);
	while (unwind->out->h.n < NATIVE_FRAMES_MAX && at < unwind->size &&
	       unwind->size - at >= sizeof(frame)) {
		memcpy(frame, unwind->stack + at, sizeof(frame));
		if (!frame[1])
			return true;
		add_frame(unwind, frame[1], frame[1] - 1);
		if (frame[0] - unwind->regs->sp <= at) /* frames further out are above */
			return !frame[0];
		at = frame[0] - unwind->regs->sp;
	}
	return unwind->regs->n_far && add_far_frames(unwind);
}

/* Unwinds a stack into *ret, an answer. */
static void unwind_stack(struct unwind *unwind, const struct native_regs *regs,
			 const uint8_t *stack, size_t size, struct wire_frames *ret)
{
	unwind->regs = regs;
	unwind->stack = stack;
	unwind->size = size;
	unwind->out = ret;
	ret->h = (struct wire_hdr){ .kind = WIRE_FRAMES };
	ret->chars[0] = '\0';
	ret->text = 1;
	unwind->cut = unwind->left = false;
	/* If libdwfl cannot read a return address, it ends as at the end of the stack. */
	ret->whole = dwfl_getthread_frames(unwind->dwfl, THREAD, on_frame, unwind) == DWARF_CB_OK &&
		     !unwind->cut;
	if (unwind->left)
		ret->whole = add_far_frames(unwind);
	else if (lacks_tables_of_go(unwind))
		ret->whole = follow_frame_pointers(unwind);
}

/* ---- the helper ---- */

/* Sends an answer. Ends the helper if the recorder is gone. */
static void send_answer(int fd, struct wire_frames *answer)
{
	struct iovec parts[] = {
		{ answer, offsetof(struct wire_frames, v) + answer->h.n * sizeof(*answer->v) },
		{ answer->chars, answer->text },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		_exit(0);
}

int helper__run(int fd)
{
	union request *request = malloc(sizeof(*request));
	struct wire_frames *answer = malloc(sizeof(*answer));
	struct unwind *unwind = new_unwind(fd);
	size_t len;
	int passed;

	if (!request || !answer || !unwind || helper__confine())
		return HELPER_UNUSABLE;
	while ((len = (size_t)receive(fd, request, sizeof(*request), &passed))) {
		if (passed >= 0)
			close(passed);
		if (len >= sizeof(request->h) && request->h.kind == WIRE_MODULES &&
		    request->h.n <= WIRE_MODULES_MAX &&
		    len == sizeof(request->h) + request->h.n * sizeof(struct wire_module)) {
			set_modules(
				unwind,
				(const struct wire_module *)(request->bytes + sizeof(request->h)),
				request->h.n);
		} else if (len >= sizeof(request->unwind) && request->h.kind == WIRE_UNWIND &&
			   request->unwind.regs.n_far <= NATIVE_FAR_MAX) {
			unwind_stack(unwind, &request->unwind.regs,
				     request->bytes + sizeof(request->unwind),
				     len - sizeof(request->unwind), answer);
			send_answer(fd, answer);
		}
	}
	return 0;
}
