/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MEMTRACE_H
#define MEMTRACE_H
/*
 * The contract between the kernel side (bpf/) and user space (user/capture/).
 *
 * No includes: __u8 .. __u64 come from vmlinux.h on one side and from linux/types.h on the
 * other. Sizes are asserted on both sides (MT_ASSERT_SIZE). Every record in the ring begins
 * with struct mt_hdr. All addresses are the target's.
 */

#define MT_MAX_FRAMES 128 /* frames emitted per stack */
#define MT_MAX_VISIT 384  /* links followed per walk, shims included */
#define MT_MAX_ENTRIES (MT_MAX_FRAMES + MT_MAX_FRAMES / 2) /* frames and the modules among them */
#define MT_MAX_MODULE_CODES 4
#define MT_SENT_SETS 2048   /* per CPU: ids of the stacks already sent; a power of two */
#define MT_SENT_WAYS 4	    /* in each set, the last one sent first */
#define MT_SEEN_SLOTS 65536 /* code objects that any sent stack mentions, by hash */
#define MT_SCRATCH_SLOTS 4  /* walks under way at one time on one CPU */
#define MT_SHARED_SLOTS 64  /* and on all of them together beyond that */
#define MT_ASKED_SITES 8    /* places of the USDT pytorch:malloc */
#define MT_ASKED_ARGS 4
#define MT_NODE_WORDS 7	      /* read of an autograd node */
#define MT_NODE_DEPTH 8	      /* nodes that run within one another on a thread; a power of two */
#define MT_UNKEPT_NODES 256   /* threads, by hash, that a node could not be kept of */
#define MT_MODULE_DEPTH 128   /* modules that a thread is in at a time; a power of two */
#define MT_MODULE_TYPES 4096  /* classes of what is called */
#define MT_SEEN_MODULES 16384 /* objects that were called, by hash */

enum mt_rec_type {
	MT_REC_REPORT = 1,     /* c10::reportMemoryUsageToProfiler: struct mt_rec_mem */
	MT_REC_OOM = 2,	       /* c10::reportOutOfMemoryToProfiler: struct mt_rec_mem, addr 0 */
	MT_REC_CPU_NEW = 3,    /* ProfiledCPUMemoryReporter::New: struct mt_rec_mem, no totals */
	MT_REC_CPU_DELETE = 4, /* ProfiledCPUMemoryReporter::Delete: struct mt_rec_free */
	MT_REC_STACK = 5,      /* frames of a stack id, before its first use: struct mt_rec_stack */
	MT_REC_CODE_GONE = 6, /* a code object of a sent stack is being freed: struct mt_rec_gone */
	MT_REC_SCOPE_END = 7, /* a record_function scope is left: struct mt_rec_mark */
	MT_REC_MODULE_CALL = 8, /* slot_tp_call entered for a module: struct mt_rec_enter */
	MT_REC_CUDA_CALL = 9,	/* a call into CUDA came back: struct mt_rec_call */
	MT_REC_REQUESTED = 10,	/* USDT pytorch:malloc: struct mt_rec_asked */
	MT_REC_SET_DEVICE = 11, /* cudaSetDevice entered: struct mt_rec_call, arg[0] */
	MT_REC_EDGE = 12,	/* an autograd node becomes that of a tensor: struct mt_rec_node */
	MT_REC_NODE = 13,	/* another node runs on this thread, as of its next record: struct
				   mt_rec_node */
	MT_REC_MODULE_LEAVE = 14, /* modules were left by this thread: struct mt_rec_leave */
};

/* How the walk of a thread's Python frames ended. Counted by reason (MT_CNT_WALK + reason). */
enum mt_walk {
	MT_WALK_OK = 0,	   /* the whole stack */
	MT_WALK_OFF,	   /* Python frames are not being read (no layout for this interpreter) */
	MT_WALK_NO_THREAD, /* no Python thread state: a native thread */
	MT_WALK_NO_FRAME,  /* a thread state and no frame: an autograd thread */
	MT_WALK_TRUNCATED, /* more than MT_MAX_FRAMES frames */
	MT_WALK_FAULT_THREAD, /* the thread state could not be read */
	MT_WALK_FAULT_FRAME,  /* a frame could not be read; what was read so far is kept */
	MT_WALK_FAULT_SELF,   /* `self` of a module frame could not be read; frames are whole */
	MT_WALK_BUSY,	      /* no scratch slot free on this CPU */
	MT_WALK_LOST,	      /* the ring was full when the frames were to be sent */
	MT_WALK_NR,
};
#define MT_STACK_WALKS 16		/* a stack's id modulo this is its walk's outcome */
#define MT_STACK_IN_MODULE (1ULL << 63) /* of a stack's id: there are modules on it */
_Static_assert(MT_WALK_NR <= MT_STACK_WALKS, "an outcome fits into an id");

enum mt_counter {
	MT_CNT_HIT = 0,		   /* + MT_REC_*: probe hits by record type */
	MT_CNT_WALK = 16,	   /* + MT_WALK_*: walks by outcome */
	MT_CNT_RING_LOST = 32,	   /* + MT_REC_*: records not written, ring full */
	MT_CNT_FAULT_RETRIED = 48, /* sleepable programs: reads that needed a page brought in */
	MT_CNT_CALL_INNER = 49,	   /* calls made within a recorded one, and not recorded for that */
	MT_CNT_CALL_STALE = 50,	 /* calls that never came back as seen from here: left by a jump, or
				    the return missed */
	MT_CNT_CALL_FAULT = 51,	 /* arguments or results of calls that could not be read */
	MT_CNT_ASKED_FAULT = 52, /* arguments of pytorch:malloc that could not be read: no record */
	MT_CNT_NODE_RUN = 53,	 /* autograd nodes begun */
	MT_CNT_NODE_FAULT = 54,	 /* nodes that could not be read or kept */
	MT_CNT_NODE_DEEP = 55,	 /* nodes forgotten for others running within them */
	MT_CNT_MODULE_FAULT = 56, /* calls that could not be kept */
	MT_CNT_MODULE_DEEP = 57,  /* calls within more than MT_MODULE_DEPTH others: not told of */
	MT_CNT_AGAIN = 58, /* walks that ended where known frames begin, and were made once more in
			      full ... */
	MT_CNT_AGAIN_OTHER = 59, /* ... with another result: there is to be none */
	MT_CNT_CALL_DRIVER = 62, /* MT_CALL_DRIVER, within a recorded call of MT_CALL_RUNTIME */
	MT_CNT_FILTERED =
		64, /* + MT_REC_*: hits that there is no record of, as there was nothing to tell */
	MT_CNT_NR = 80,
};

/* How to get from a thread to its PyThreadState: found by calibration, see user/python/python.h */
enum mt_tls_kind {
	MT_TLS_NONE = 0,
	MT_TLS_DIRECT,	 /* *(thread pointer + off1) */
	MT_TLS_INDIRECT, /* *(*(thread pointer + off1) + off2): pthread keys >= 32, dynamic TLS */
};

/* Layout of CPython's thread state and frames in the target. Read-only data of the programs. */
struct mt_py_layout {
	__u32 tls_kind;	     /* enum mt_tls_kind */
	__u32 tstate_cframe; /* 1: tstate_frame holds a _PyCFrame (3.11, 3.12) */
	__s64 tls_off1;
	__s64 tls_off2;
	__u32 tstate_frame; /* offset of frame / cframe / current_frame in PyThreadState */
	__u32 cframe_frame; /* offset of current_frame in _PyCFrame */
	__u32 frame_base;   /* where the one read of a frame begins; offsets below count from it */
	__u32 frame_code;
	__u32 frame_prev;
	__u32 frame_instr;   /* f_lasti (i32) before 3.11, prev_instr / instr_ptr from 3.11 */
	__u32 frame_owner;   /* u8; 0xffffffff where there is none (before 3.12: no shims) */
	__u32 frame_local0;  /* from the frame's own start, not from frame_base */
	__u32 owner_shim;    /* frames with owner >= this are shims */
	__u32 lasti_scale;   /* before 3.11: 1 or 2 (bytes per unit of f_lasti); 0 from 3.11 on */
	__u32 code_adaptive; /* offset of co_code_adaptive in the code object, from 3.11 */
	__u32 ob_type;	     /* offset of an object's type */
	__u64 tag_mask;	     /* and-mask for f_executable and localsplus: ~3 on 3.14, ~0 before */
	__u64 type_cell;     /* &PyCell_Type: a captured `self` lies in a cell */
};

/* Does an autograd node run? */
enum mt_node {
	MT_NODE_NONE = 0,
	MT_NODE_CURRENT, /* the one of the thread's last MT_REC_NODE */
	MT_NODE_UNKNOWN, /* one does, and which cannot be told */
};

struct mt_hdr {
	__u8 type;	    /* enum mt_rec_type */
	__u8 walk;	    /* enum mt_walk */
	__u8 sleepable : 1; /* written by the sleepable programs */
	__u8 member : 7;    /* whose it is, see group.h */
	__u8 node;	    /* enum mt_node, where memory is allocated or a node is made; else 0 */
	__u32 tid;
	__u64 time; /* CLOCK_MONOTONIC, ns */
};

struct mt_rec_mem {
	struct mt_hdr h;
	__u64 addr;
	__s64 size;	 /* bytes, signed: < 0 is a free */
	__u64 allocated; /* the allocator's own totals after this event */
	__u64 reserved;
	__u64 stack;  /* stack id, 0: none (see h.walk) */
	__u16 device; /* c10::Device as passed: low byte type, high byte index */
	__u16 pad[3];
};

struct mt_rec_free {
	struct mt_hdr h;
	__u64 addr;
};

struct mt_rec_gone {
	struct mt_hdr h;
	__u64 code;
	__u64 epoch; /* the epoch from now on */
};

struct mt_rec_mark {
	struct mt_hdr h;
	__u64 stack;
};

/* Is a class one of modules? */
enum mt_module_type {
	MT_TYPE_MODULE = 1,
	MT_TYPE_OTHER, /* its calls are not told of */
};

/* An object is called. Each says how deep it is, so that what got lost before does not matter. */
struct mt_rec_enter {
	struct mt_hdr h;
	__u64 self;
	__u64 type;  /* its class */
	__u64 stack; /* where nothing is known of what the thread was in before: of the caller; else
			0 */
	__u64 sp;    /* the call is under way as long as this is above the stack pointer ... */
	__u64 ret;   /* ... and holds this; 0: could not be read */
	__u32 depth; /* calls that it lies in */
	__u32 keep; /* of those told of, from the outermost on, so many are among them: the rest has
		       been left */
};

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
	__u64 epoch; /* value of the code epoch that the id was made under */
	__u32 n;     /* struct mt_frame that follow, innermost first */
	__u32 pad;
};

/*
 * A call into the CUDA runtime or driver, written when it comes back. Calls made within another one
 * that is recorded (the runtime calls the driver) are not.
 */
enum mt_call_flag {
	MT_CALL_OUT = 1 << 0,	 /* hands something out through arg[0] */
	MT_CALL_WALK = 1 << 1,	 /* its stack is wanted */
	MT_CALL_PITCH = 1 << 2,	 /* at the return arg[1] becomes *(u64 *)arg[1]: a row's bytes */
	MT_CALL_EXTENT = 1 << 3, /* cudaExtent on the stack: arg[1..3] = pitch (out of *arg[0]),
				    height, depth */
	MT_CALL_PROP = 1 << 4,	 /* arg[2] becomes what CUmemAllocationProp.location holds: low half
				    type, high half id */
	MT_CALL_POOL = 1 << 5,	 /* arg[1] becomes the same of CUmemPoolProps; arg[2] its beginning:
				    low half allocType */
	MT_CALL_RUNTIME = 1 << 6, /* of a runtime that has to call a driver in another file */
	MT_CALL_DRIVER = 1 << 7,  /* a function of the driver that takes memory */
};
#define MT_CALL_COOKIE(fn, flags) ((__u64)(flags) << 32 | (fn))

struct mt_rec_call {
	struct mt_hdr h;
	__u16 fn;      /* number of the function, user/torch/cuda.h */
	__u16 flags;   /* enum mt_call_flag */
	__s32 result;  /* 0: success */
	__u64 arg[4];  /* as passed, but see enum mt_call_flag; what could not be read is ~0 */
	__u64 out;     /* MT_CALL_OUT and success: what *arg[0] holds at the return; else 0 */
	__u64 caller;  /* the call's return address */
	__u64 stack;   /* of the entry; 0: none (see h.walk) */
	__u64 entered; /* CLOCK_MONOTONIC, ns; h.time is the return */
};

/* Where an argument of a USDT is at its site. */
struct mt_usdt_arg {
	__u16 reg;   /* offset in struct pt_regs */
	__u8 size;   /* bytes: 1, 2, 4, 8 */
	__u8 memory; /* 1: the value is at register + disp in memory */
	__s32 disp;
};

struct mt_usdt_args {
	struct mt_usdt_arg arg[MT_ASKED_ARGS];
};

struct mt_rec_asked {
	struct mt_hdr h;
	__u64 addr;
	__u64 requested; /* bytes */
	__u64 stream;
	__u32 device;
	__u32 pad;
};

/* The beginning of a torch::autograd::Node as it was then: see user/torch/autograd.h */
struct mt_rec_node {
	struct mt_hdr h;
	__u64 node;		   /* its address */
	__u64 head[MT_NODE_WORDS]; /* its first words; all 0: could not be read */
	__u64 extra;		   /* MT_REC_NODE: see struct mt_node_layout */
	__u64 stack;		   /* MT_REC_EDGE: of the call, 0: none (see h.walk) */
};

/* What else is read of a node that begins to run. User space may change it at any time. */
struct mt_node_layout {
	__u64 extra; /* offset of the word that is read of those that accumulate gradients, 0: none */
	__u64 sequence;	   /* their sequence number, which word of the head it is, is all ones */
	__u64 object_vptr; /* of the class that points to an object, whose type is read instead; 0:
			      none */
	__u64 object;	   /* offset of that pointer */
	__u64 object_type; /* offset of the type in an object */
};

/* Ids of stacks that a CPU has sent, of those with the same hash. */
struct mt_sent {
	__u64 id[MT_SENT_WAYS];
};

#define MT_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed size")
MT_ASSERT_SIZE(struct mt_hdr, 16);
MT_ASSERT_SIZE(struct mt_rec_mem, 64);
MT_ASSERT_SIZE(struct mt_rec_free, 24);
MT_ASSERT_SIZE(struct mt_rec_gone, 32);
MT_ASSERT_SIZE(struct mt_rec_mark, 24);
MT_ASSERT_SIZE(struct mt_rec_enter, 64);
MT_ASSERT_SIZE(struct mt_rec_leave, 24);
MT_ASSERT_SIZE(struct mt_frame, 16);
MT_ASSERT_SIZE(struct mt_rec_stack, 40);
MT_ASSERT_SIZE(struct mt_rec_call, 88);
MT_ASSERT_SIZE(struct mt_usdt_arg, 8);
MT_ASSERT_SIZE(struct mt_rec_asked, 48);
MT_ASSERT_SIZE(struct mt_rec_node, 96);
MT_ASSERT_SIZE(struct mt_node_layout, 40);
MT_ASSERT_SIZE(struct mt_py_layout, 88);

#endif
