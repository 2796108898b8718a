/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The contract between the kernel side (bpf/) and user space (user/capture/).
 *
 * On the kernel side, __u8 .. __u64 come from vmlinux.h. Sizes are asserted on both sides
 * (MT_ASSERT_SIZE). Every record in the ring begins with struct mt_hdr. All addresses are the
 * target's.
 */
#ifndef __bpf__
#include <linux/types.h>
#endif

#define MT_MAX_FRAMES 128 /* frames emitted per stack */
#define MT_MAX_VISIT 384  /* frame links followed per walk, shims included */
#define MT_MAX_ENTRIES (MT_MAX_FRAMES + MT_MAX_FRAMES / 2) /* frames, and nn.Modules among them */
#define MT_MAX_MODULE_CODES 4
#define MT_SENT_SETS 4096    /* table of the stacks already sent; a power of two */
#define MT_SENT_WAYS 4	     /* entries per set, most recent first */
#define MT_SEEN_SLOTS 65536  /* table of code objects that sent stacks mention, by hash */
#define MT_SCRATCH_SLOTS 128 /* concurrent walks on all CPUs together; a power of two */
#define MT_COUNTER_STRIPES                                                                         \
	16		 /* with a group: copies of a process's counters, at most; a power of two */
#define MT_ABSENT 64	 /* unreadable addresses kept for user space; a power of two */
#define MT_ASKED_SITES 8 /* sites of the USDT pytorch:malloc */
#define MT_ASKED_ARGS 4
#define MT_NODE_WORDS 7	      /* 8-byte words read of an autograd node */
#define MT_NODE_DEPTH 8	      /* nested running nodes kept per thread; a power of two */
#define MT_UNKEPT_NODES 256   /* table of threads, by hash, whose node found no memory */
#define MT_MODULE_DEPTH 128   /* nested module calls kept per thread; a power of two */
#define MT_MODULE_TYPES 4096  /* classes of called objects */
#define MT_KNOWN_TYPES 256    /* table of most of these classes, by hash; a power of two */
#define MT_SEEN_MODULES 16384 /* bits of called objects, by hash */

enum mt_rec_type {
	MT_REC_REPORT = 1,     /* c10::reportMemoryUsageToProfiler: struct mt_rec_mem */
	MT_REC_OOM = 2,	       /* c10::reportOutOfMemoryToProfiler: struct mt_rec_mem, addr 0 */
	MT_REC_CPU_NEW = 3,    /* ProfiledCPUMemoryReporter::New: struct mt_rec_mem, no totals */
	MT_REC_CPU_DELETE = 4, /* ProfiledCPUMemoryReporter::Delete: struct mt_rec_free */
	MT_REC_STACK = 5,      /* frames of a stack id, before its first use: struct mt_rec_stack */
	MT_REC_CODE_GONE = 6, /* a code object of a sent stack is being freed: struct mt_rec_gone */
	MT_REC_SCOPE_END = 7, /* a record_function scope is left: struct mt_rec_mark */
	MT_REC_MODULE_CALL = 8, /* a module is called: struct mt_rec_enter */
	MT_REC_CUDA_CALL = 9,	/* a call into CUDA returned: struct mt_rec_call */
	MT_REC_REQUESTED = 10,	/* USDT pytorch:malloc: struct mt_rec_asked */
	MT_REC_SET_DEVICE = 11, /* cudaSetDevice entered: struct mt_rec_call, arg[0] */
	MT_REC_EDGE = 12, /* an autograd node becomes the grad_fn of a tensor: struct mt_rec_node */
	MT_REC_NODE = 13, /* this thread's running node has changed: struct mt_rec_node */
	MT_REC_MODULE_LEAVE = 14, /* this thread left modules: struct mt_rec_leave */
	/* A thread's registers and a copy of its stack, before a record of the same event: struct
	 * mt_rec_native */
	MT_REC_NATIVE = 15,
	MT_REC_HOST = 16, /* a system call changed the process's address space: struct mt_rec_host */
	MT_REC_MALLOC = 17, /* malloc gave a block that is in the sample: struct mt_rec_malloc */
	MT_REC_MALLOC_FREE = 18, /* a block of the sample is freed: struct mt_rec_free */
	/* A tensor in a local variable, before the MT_REC_OOM of the same time: struct
	 * mt_rec_tensor */
	MT_REC_TENSOR = 19,
	/* A record_function scope begins, or an NVTX range or a scope of USDT probes begins or
	 * ends: struct mt_rec_scope */
	MT_REC_SCOPE = 20,
};

#define MT_REC_TYPES 32 /* room for types of records in tables; a power of two */

/* Outcome of the walk over a thread's Python frames. Counter: MT_CNT_WALK + outcome. */
enum mt_walk {
	MT_WALK_OK = 0,	      /* the whole stack */
	MT_WALK_OFF,	      /* Python frames are not read: no layout for this interpreter */
	MT_WALK_NO_THREAD,    /* no Python thread state: a native thread */
	MT_WALK_NO_FRAME,     /* a thread state without a frame: an autograd thread */
	MT_WALK_TRUNCATED,    /* more than MT_MAX_FRAMES frames */
	MT_WALK_FAULT_THREAD, /* the thread state could not be read */
	MT_WALK_FAULT_FRAME,  /* a frame could not be read; the record keeps the frames before it */
	MT_WALK_FAULT_SELF, /* `self` of a module frame could not be read; the frames are complete */
	MT_WALK_BUSY,	    /* no scratch slot was free */
	MT_WALK_LOST,	    /* the ring was full when the frames were sent */
	MT_WALK_NR,
};
#define MT_STACK_WALKS 16 /* a stack id modulo this is the walk's outcome */
/* Not an outcome: the allocation is below mt_detail.sample_below and was not drawn. Its counter is
 * MT_CNT_WALK + MT_WALK_NOT_SAMPLED. The decoder replaces it, so no recording has it. */
#define MT_WALK_NOT_SAMPLED 15
#define MT_STACK_IN_MODULE (1ULL << 63) /* flag in a stack id: the stack has module entries */
_Static_assert(MT_WALK_NR <= MT_WALK_NOT_SAMPLED && MT_WALK_NOT_SAMPLED < MT_STACK_WALKS,
	       "an outcome fits into an id");

enum mt_counter {
	MT_CNT_HIT = 0,		   /* + MT_REC_*: probe hits by record type */
	MT_CNT_WALK = 32,	   /* + MT_WALK_*: walks by outcome */
	MT_CNT_RING_LOST = 48,	   /* + MT_REC_*: records not written, ring full */
	MT_CNT_FAULT_RETRIED = 80, /* sleepable programs: reads of pages that had to be brought in */
	MT_CNT_CALL_INNER = 81,	   /* calls within a recorded call, therefore not recorded */
	MT_CNT_CALL_STALE = 82,	   /* calls whose return was never seen, such as after longjmp */
	MT_CNT_CALL_FAULT = 83,	   /* calls with unreadable arguments or results */
	MT_CNT_ASKED_FAULT = 84,   /* pytorch:malloc hits with unreadable arguments: no record */
	MT_CNT_NODE_RUN = 85,	   /* autograd nodes that began to run */
	MT_CNT_NODE_FAULT = 86,	   /* autograd nodes that could not be read or kept */
	MT_CNT_NODE_DEEP = 87,	   /* autograd nodes dropped: more than MT_NODE_DEPTH nested */
	MT_CNT_MODULE_FAULT = 88,  /* module calls for which there was no memory */
	MT_CNT_MODULE_DEEP = 89,   /* module calls dropped: more than MT_MODULE_DEPTH nested */
	MT_CNT_AGAIN = 90,	   /* shortened walks that were repeated in full */
	MT_CNT_AGAIN_OTHER = 91,   /* repeated walks with a different result: a bug if not 0 */
	MT_CNT_NATIVE_OVER = 92,   /* stacks not copied: more than `native_most` in this second */
	MT_CNT_MALLOC_FULL = 93, /* blocks left out of malloc's sample: no room for their address */
	MT_CNT_CALL_DRIVER = 94, /* MT_CALL_DRIVER calls within a recorded MT_CALL_RUNTIME call */
	MT_CNT_FILTERED =
		96, /* + MT_REC_*: hits without a record, because they had nothing to report */
	MT_CNT_NR = 128,
};

/* Path from a thread to its PyThreadState; user/inspect/python.h finds it by calibration. */
enum mt_tls_kind {
	MT_TLS_NONE = 0,
	MT_TLS_DIRECT,	 /* *(thread pointer + first) */
	MT_TLS_INDIRECT, /* *(*(thread pointer + first) + second): pthread keys >= 32, dynamic TLS
			  */
	MT_TLS_EITHER,	 /* *(thread pointer + first), or *(thread pointer + second) if that is 0 */
};

#define MT_NO_OFFSET 0xffffffffU /* the field does not exist */

/* Layout of CPython's thread state and frames in the target; constant while programs are loaded. */
struct mt_py_layout {
	__u32 tls_kind;		     /* enum mt_tls_kind */
	__u32 tstate_cframe;	     /* 1: tstate_frame holds a _PyCFrame (3.11, 3.12) */
	__s64 tls_first, tls_second; /* offsets: see enum mt_tls_kind */
	__u32 tstate_frame;	     /* offset of frame / cframe / current_frame in PyThreadState */
	__u32 cframe_frame;	     /* offset of current_frame in _PyCFrame */
	__u32 frame_base; /* offset in a frame where its read begins; base of the offsets below */
	__u32 frame_code;
	__u32 frame_prev;
	__u32 frame_instr;   /* f_lasti (i32) before 3.11, prev_instr / instr_ptr from 3.11 */
	__u32 frame_owner;   /* offset of a u8; MT_NO_OFFSET: none (before 3.12: no shims) */
	__u32 frame_local0;  /* offset from the frame's start, not from frame_base */
	__u32 owner_shim;    /* frames with owner >= this are shims */
	__u32 lasti_scale;   /* before 3.11: 1 or 2 (bytes per unit of f_lasti); 0 from 3.11 on */
	__u32 code_adaptive; /* offset of co_code_adaptive in the code object, from 3.11 */
	__u32 ob_type;	     /* offset of an object's type; a cell's content follows it */
	__u32 code_names;    /* offset of the tuple of local variables' names in the code object */
	__u32 frame_tlbc; /* number of the thread's copy of the bytecode; MT_NO_OFFSET: one copy */
	__u32 code_tlbc;  /* offset of the array of copies in the code object */
	__u64 tag_mask;	  /* and-mask for f_executable and localsplus: ~3 from 3.14 on */
	__u64 type_cell;  /* &PyCell_Type: a captured `self` is in a cell */
	__u32 ob_size;	  /* offset of the length of a tuple */
	__u32 tp_name, tp_base; /* offsets in a type */
	__u32 pad;
};

/* The autograd node that runs on a thread. */
enum mt_node {
	MT_NODE_NONE = 0,
	MT_NODE_CURRENT, /* the node of the thread's last MT_REC_NODE */
	MT_NODE_UNKNOWN, /* a node runs, but it is unknown which */
};

struct mt_hdr {
	__u8 type;	    /* enum mt_rec_type */
	__u8 walk;	    /* enum mt_walk */
	__u8 sleepable : 1; /* written by the sleepable programs */
	__u8 member : 7;    /* number of the process, see group.h */
	__u8 node;	    /* enum mt_node for allocations and MT_REC_EDGE; otherwise 0 */
	__u32 tid;
	__u64 time; /* CLOCK_MONOTONIC, ns */
};

struct mt_rec_mem {
	struct mt_hdr h;
	__u64 addr;
	__s64 size;	 /* bytes, signed: < 0 is a free */
	__u64 allocated; /* the allocator's own totals after this event, bytes */
	__u64 reserved;
	__u64 stack;  /* stack id, 0: none (see h.walk) */
	__u16 device; /* c10::Device as passed: low byte type, high byte index */
	__u16 pad[3];
};

/* What an out of memory's record is preceded by, at most. */
#define MT_LOCAL_TENSORS 64
#define MT_LOCAL_FRAMES 64  /* frames whose variables are read */
#define MT_LOCAL_SLOTS 128  /* variables of a frame */
#define MT_LOCAL_LOOKS 2048 /* variables and frames together, at most */
#define MT_TENSOR_IMPL 192
#define MT_TENSOR_STORAGE 64
#define MT_TENSOR_SIZES 8

/*
 * A tensor that is the value of a local variable of a frame of the failed allocation: copies of its
 * C++ objects, because they may change as soon as the thread goes on. user/inspect/pytensor.h reads
 * them.
 */
struct mt_rec_tensor {
	struct mt_hdr h;	   /* time: as of the MT_REC_OOM that follows */
	__u64 epoch;		   /* code epoch when the frames were read */
	__u64 code;		   /* code object of the frame */
	__s32 at;		   /* byte offset of the frame's instruction */
	__u16 depth;		   /* number of frames inside of it */
	__u16 number;		   /* index of the variable */
	__u64 object;		   /* the Python object */
	__u64 impl_at, storage_at; /* its c10::TensorImpl, and perhaps its c10::StorageImpl */
	__u8 impl[MT_TENSOR_IMPL];
	__u8 storage[MT_TENSOR_STORAGE]; /* all 0: could not be read */
	/* The first sizes, if there are too many for the TensorImpl; otherwise 0. */
	__u64 sizes[MT_TENSOR_SIZES];
};

struct mt_rec_free {
	struct mt_hdr h;
	__u64 addr;
};

struct mt_rec_gone {
	struct mt_hdr h;
	__u64 code;
	__u64 epoch; /* the code epoch that begins with this event */
};

struct mt_rec_mark {
	struct mt_hdr h;
	__u64 stack;
};

#define MT_SCOPE_NAME 80 /* bytes of a scope's name; a shorter one ends with a NUL */

/* Who names a scope, as enum scope_source of user/record/stream.h. */
enum mt_scope_source {
	MT_SCOPE_RECORD_FUNCTION = 2,
	MT_SCOPE_NVTX = 3,
	MT_SCOPE_USDT = 16, /* and MT_SCOPE_PAIRS - 1 more: a source for each pair of probes */
};

#define MT_SCOPE_PAIRS 8

struct mt_rec_scope {
	struct mt_hdr h;
	__u8 source; /* enum mt_scope_source */
	__u8 ends;   /* 1: the thread's innermost scope of this source ends; name is empty */
	__u8 pad[6];
	__u64 name_at;		  /* address of the name; 0: none */
	char name[MT_SCOPE_NAME]; /* empty if it could not be read; anything may follow a NUL */
};

/* Whether calls of a class's objects are module calls. */
enum mt_module_type {
	MT_TYPE_MODULE = 1,
	MT_TYPE_OTHER, /* not a module: its calls are not reported */
};

/* A class in the table of MT_KNOWN_TYPES words: address with the process's number above it (as
 * own_key() makes it) and enum mt_module_type in one word. 0: a free place. */
#define MT_KNOWN_TYPE(key, is) ((__u64)(key) | (__u64)(is) << 56)
#define MT_KNOWN_KEY(word) ((word) & ~(0xffULL << 56))
#define MT_KNOWN_IS(word) ((__u8)((word) >> 56))
#define MT_KNOWN_PLACE(key)                                                                        \
	((__u32)(((__u64)(key) >> 4) * 0x9e3779b97f4a7c15ULL >> 32) & (MT_KNOWN_TYPES - 1))

/* Call of a module. Each record has the depth, so that lost records before it do no harm. */
struct mt_rec_enter {
	struct mt_hdr h;
	__u64 self;
	__u64 type;  /* class of `self` */
	__u64 stack; /* caller's stack id while modules from before attach may be active, or 0 */
	__u64 sp;    /* address of `ret`; the call is active while the stack pointer is below ... */
	__u64 ret;   /* ... and it still holds this return address; 0: could not be read */
	__u32 depth; /* number of active calls around this call, or MT_DEPTH_BOUND */
	__u32 keep;  /* number of outermost reported calls that are still active */
};

/* The depth of a call without slot_tp_call, around which no call is active. The record has the
 * stack, keep and nothing else: the stack tells the module, and no return address shows its end. */
#define MT_DEPTH_BOUND 0xffffffffU

struct mt_rec_leave {
	struct mt_hdr h;
	__u32 keep; /* as in struct mt_rec_enter */
	__u32 pad;
};

enum mt_frame_kind {
	MT_FRAME_CODE = 0,   /* addr: code object; at: byte offset of the instruction */
	MT_FRAME_MODULE = 1, /* addr: nn.Module that is local 0 of the frame before this entry */
};

struct mt_frame {
	__u64 addr;
	__s32 at;
	__u32 kind; /* enum mt_frame_kind */
};

struct mt_rec_stack {
	struct mt_hdr h;
	__u64 stack;
	__u64 epoch; /* code epoch under which the id was made */
	__u32 n;     /* number of struct mt_frame that follow, innermost first */
	__u32 pad;
};

/*
 * A call into the CUDA runtime or driver, written when it returns. Calls within a recorded call are
 * not recorded: the runtime calls the driver.
 */
enum mt_call_flag {
	MT_CALL_OUT = 1 << 0,	 /* the call returns a value through *arg[0] */
	MT_CALL_WALK = 1 << 1,	 /* the call's stack is recorded */
	MT_CALL_PITCH = 1 << 2,	 /* at the return, arg[1] becomes *(u64 *)arg[1]: bytes of a row */
	MT_CALL_EXTENT = 1 << 3, /* cudaExtent on the stack: arg[1..3] = pitch (from *arg[0]),
				    height, depth */
	MT_CALL_PROP = 1 << 4,	 /* arg[2] becomes CUmemAllocationProp.location: type, id << 32 */
	MT_CALL_POOL =
		1 << 5, /* arg[1], arg[2] become CUmemPoolProps.location, .allocType (low half) */
	MT_CALL_RUNTIME = 1 << 6, /* runtime function; the driver is in another file */
	MT_CALL_DRIVER = 1 << 7,  /* driver function that allocates memory */
};
#define MT_CALL_COOKIE(fn, flags) ((__u64)(flags) << 32 | (fn))

struct mt_rec_call {
	struct mt_hdr h;
	__u16 fn;      /* function number, see user/inspect/cuda.h */
	__u16 flags;   /* enum mt_call_flag */
	__s32 result;  /* 0: success */
	__u64 arg[4];  /* arguments, or see enum mt_call_flag; ~0: could not be read */
	__u64 out;     /* MT_CALL_OUT and success: *arg[0] at the return; otherwise 0 */
	__u64 caller;  /* the call's return address */
	__u64 stack;   /* stack id at the entry; 0: none (see h.walk) */
	__u64 entered; /* CLOCK_MONOTONIC, ns; h.time is the time of the return */
};

#define MT_NATIVE_STACK 16384 /* bytes of a stack that are copied, at most */
#define MT_NATIVE_PIECE 1024  /* bytes read at a time; the copy ends before one that fails */
#define MT_NATIVE_FAR 32      /* return addresses outside of the copied stack, at most */

/* Belongs to the thread's next record with this time. */
struct mt_rec_native {
	struct mt_hdr h;
	__u64 stack_id; /* of the Python stack; 0: none (see h.walk) */
	__u64 ip, sp, fp, lr;
	__u32 size; /* bytes of the stack that follow, from sp on */
	__u16 n_far;
	__u16 in_call; /* 1: ip is in the caller's call; 0: in the called function */
	/* Return addresses of the frames that the frame pointers lead to outside of the copied
	 * stack: Go's runtime runs on another stack than the goroutine that called it. */
	__u64 far[MT_NATIVE_FAR];
};

/* Location of a USDT argument at its site. */
struct mt_usdt_arg {
	__u16 reg;   /* offset in struct pt_regs */
	__u8 size;   /* bytes: 1, 2, 4, 8 */
	__u8 memory; /* 1: the value is at register + disp in memory */
	__s32 disp;
};

struct mt_usdt_args {
	struct mt_usdt_arg arg[MT_ASKED_ARGS];
};

/* Cookie of a USDT probe that begins or ends a scope: where the address of the name is, as in
 * struct mt_usdt_arg, flags, and the scope's source. Without MT_SCOPE_NAMED there is no name. */
#define MT_SCOPE_COOKIE(source, flags, reg, disp)                                                  \
	((__u64)(source) << 48 | (__u64)(flags) << 40 | (__u64)(reg) << 32 | (__u32)(disp))
#define MT_SCOPE_ENDS 1
#define MT_SCOPE_NAMED 2
#define MT_SCOPE_MEMORY 4 /* the address of the name is in memory */

struct mt_rec_asked {
	struct mt_hdr h;
	__u64 addr;
	__u64 requested; /* bytes */
	__u64 stream;
	__u32 device;
	__u32 pad;
};

/* An autograd node's first bytes when the record was written; layout: user/inspect/pytensor.h */
struct mt_rec_node {
	struct mt_hdr h;
	__u64 node;		   /* its address */
	__u64 head[MT_NODE_WORDS]; /* first words of the node; all 0: could not be read */
	__u64 extra;		   /* MT_REC_NODE: see struct mt_node_layout */
	__u64 stack;		   /* MT_REC_EDGE: stack id of the call, 0: none (see h.walk) */
};

/* System calls that change the address space. Failed calls have no record. */
enum mt_host_call {
	MT_HOST_MMAP = 1, /* addr, len: the new mapping; to: protection; flags: MAP_* */
	MT_HOST_MUNMAP,	  /* addr, len */
	MT_HOST_MREMAP,	  /* addr, len: before; to, to_len: after; flags: MREMAP_* */
	MT_HOST_BRK,	  /* addr: the end of the heap after the call */
	MT_HOST_MPROTECT, /* addr, len; to: protection. Only calls that make memory writable */
	MT_HOST_SHMAT,	  /* addr: the new mapping; its length is that of the segment */
};

struct mt_rec_host {
	struct mt_hdr h;
	__u64 addr, len, to, to_len;
	__u64 stack; /* stack id, 0: none (see h.walk) */
	__u32 call;  /* enum mt_host_call */
	__u32 flags;
};

#define MT_MALLOC_RANGES 32	     /* code of malloc's functions: ranges of addresses */
#define MT_MALLOC_MAX (1ULL << 47)   /* bytes; calls for more fail */
#define MT_MALLOC_SETS_MAX (1 << 15) /* sets of 8 blocks of malloc's sample; a power of two */

/* The arguments of a function that gives blocks: the cookie of its probe. */
enum mt_malloc_how {
	MT_MALLOC_SIZE = 3,	     /* number of the argument with the size, from 1 */
	MT_MALLOC_COUNT_AT = 2,	     /* bits below ... */
	MT_MALLOC_COUNT = 3 << 2,    /* ... the number of the argument to multiply it by; 0: none */
	MT_MALLOC_OLD = 1 << 4,	     /* argument 1 is a block that the call ends (realloc) */
	MT_MALLOC_OUT = 1 << 5,	     /* the block's address goes to *argument 1 */
	MT_MALLOC_FORWARDS = 1 << 6, /* without such a block, the function jumps to another one */
};

/* A block of malloc's sample. h.time: when the call returned. */
struct mt_rec_malloc {
	struct mt_hdr h;
	__u64 addr;
	__u64 size;    /* bytes that the program asked for */
	__u64 every;   /* it was drawn with the probability size / every, at most 1 */
	__u64 stack;   /* stack id at the entry; 0: none (see h.walk) */
	__u64 entered; /* CLOCK_MONOTONIC, ns: time of its mt_rec_native */
};

/* Additional word to read of a node that begins to run. User space may change it at any time. */
struct mt_node_layout {
	__u64 extra;	/* offset of the word to read in nodes that accumulate gradients; 0: none */
	__u64 sequence; /* index in `head` of the number that is ~0 in nodes accumulating gradients */
	__u64 object_vptr; /* vtable of nodes whose object's type is read instead; 0: none */
	__u64 object;	   /* offset of the pointer to the object */
	__u64 object_type; /* offset of the type in an object */
};

/* Parts of the programs' work that user space switches off while hits are too dear. */
enum mt_off {
	MT_OFF_NODES = 1,   /* autograd nodes */
	MT_OFF_MODULES = 2, /* calls of modules */
	MT_OFF_SCOPES = 4,  /* scopes of record_function, NVTX and USDT probes */
};

/* What the programs leave out. User space may change it at any time. */
struct mt_detail {
	__u64 sample_below; /* an allocation of n bytes, less than this, is walked with probability
			       n / sample_below; 0: all are walked. At most 2^31 */
	__u32 off;	    /* enum mt_off */
	__u32 generation;   /* goes up with each change of `off`: what threads keep of nodes and
			       modules from before it no longer holds */
};

#define MT_TIMED_EVERY 64  /* the programs time about one hit in this many; a power of two */
#define MT_TIMED_MAX 50000 /* ns; longer runs were interrupted and are not counted */

/* Time in a program, of hits of one type. Only some hits are timed. */
struct mt_timed {
	__u64 hits, ns;
};

/* Ids of stacks already sent, in one set of the table. */
struct mt_sent {
	__u64 id[MT_SENT_WAYS];
};

#define MT_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed size")
MT_ASSERT_SIZE(struct mt_hdr, 16);
MT_ASSERT_SIZE(struct mt_rec_mem, 64);
MT_ASSERT_SIZE(struct mt_rec_free, 24);
MT_ASSERT_SIZE(struct mt_rec_gone, 32);
MT_ASSERT_SIZE(struct mt_rec_mark, 24);
MT_ASSERT_SIZE(struct mt_rec_scope, 112);
MT_ASSERT_SIZE(struct mt_rec_enter, 64);
MT_ASSERT_SIZE(struct mt_rec_leave, 24);
MT_ASSERT_SIZE(struct mt_frame, 16);
MT_ASSERT_SIZE(struct mt_rec_stack, 40);
MT_ASSERT_SIZE(struct mt_rec_call, 88);
MT_ASSERT_SIZE(struct mt_usdt_arg, 8);
MT_ASSERT_SIZE(struct mt_rec_asked, 48);
MT_ASSERT_SIZE(struct mt_rec_node, 96);
MT_ASSERT_SIZE(struct mt_rec_host, 64);
MT_ASSERT_SIZE(struct mt_rec_native, 320);
MT_ASSERT_SIZE(struct mt_rec_malloc, 56);
MT_ASSERT_SIZE(struct mt_node_layout, 40);
MT_ASSERT_SIZE(struct mt_detail, 16);
MT_ASSERT_SIZE(struct mt_timed, 16);
MT_ASSERT_SIZE(struct mt_rec_tensor, 384);
MT_ASSERT_SIZE(struct mt_py_layout, 120);
