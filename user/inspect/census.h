/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Census: the roles of a program's memory, read from its own Python objects. It finds the
 * parameters and buffers of modules, their gradients, optimizer state, and all other tensors that
 * Python knows. The process runs on and is only read. Objects that change meanwhile or fail a check
 * are left out and counted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct census;
struct proc;
struct python;

/* Role of memory, in order of precedence: a storage that several tensors share has the first of
 * their kinds. */
enum census_kind {
	CENSUS_PARAMETER,
	CENSUS_BUFFER,
	CENSUS_GRADIENT,
	CENSUS_OPTIMIZER,
	/* Keys and values of attention that an inference program keeps for the next tokens. */
	CENSUS_KV_CACHE,
	/* Saved for backward by autograd's graph, and made by a node of that graph. */
	CENSUS_ACTIVATION,
	CENSUS_OTHER,
	CENSUS_KINDS,
};

/* "parameter", "optimizer_state", ... "unknown" */
const char *census_kind__name(enum census_kind k);

#define CENSUS_DIMS 8

/* Name, module, shape and type of a storage. Storages for which all of these are equal share one
 * struct, which census_state owns. Texts come from the target and are hostile. */
struct census_about {
	/* "layers.3.weight", "grad of ...", "AdamW exp_avg of ..."; "" without a name. A storage of
	 * several named tensors: "layers.0.weight and 11 more". */
	const char *name;
	/* Module that the parameter belongs to: "layers.3"; "" for a root module or none. */
	const char *module;
	const char *cls;	    /* class of that module: "Linear"; "" for none */
	const char *root;	    /* class of its root module */
	int64_t shape[CENSUS_DIMS]; /* shape of the tensor that names the storage */
	uint8_t ndim;		    /* number of dimensions; may exceed CENSUS_DIMS */
	uint8_t dtype;		    /* c10::ScalarType; pytensor__dtype() has its name */
};

/* A storage: the memory of one or more tensors. */
struct census_tensor {
	uint64_t addr, size;
	const struct census_about *about;
	uint32_t views; /* number of tensors in the storage */
	uint8_t kind;	/* enum census_kind */
	uint8_t device_type, device_index;
	/* From the device's ordinary allocator; false for external memory, such as a numpy array or
	 * a file. */
	bool allocated;
};

/* Memory of an object that is no tensor: bytes, bytearray, str, numpy.ndarray or mmap.mmap. */
struct census_memory {
	uint64_t addr, size; /* hostile */
	/* Path of what holds the object: "global cache[*]"; hostile, owned by census_state. */
	const char *name;
};

/* Models of one class that one variable leads to. Texts are hostile. */
struct census_model {
	const char *cls;     /* class of the root module: "GPT" */
	const char *held_by; /* path of that variable: "global best[*]"; "": none was found */
	uint64_t count;	     /* number of models */
	/* Bytes of parameters and buffers: of all models, of the smallest and of the largest one. */
	uint64_t bytes, least, most;
};

/* Text before the names in a model, such as "teacher" in "teacher.fc.weight": the variable that
 * leads to the model. Only models with the same names as another model have one. */
struct census_front {
	uint64_t root, type; /* the root module and its class, addresses in the target */
	const char *text;
};

struct census_device {
	uint8_t type, index;
	uint64_t bytes[CENSUS_KINDS]; /* bytes of the storages, by kind */
	uint64_t count[CENSUS_KINDS];
};

/* Whether an optimizer's count of its steps could be read. In order of precedence: if parameters
 * differ, the highest value is the optimizer's. */
enum census_count {
	CENSUS_COUNT_NONE, /* the optimizer keeps no count of its steps, or has not taken one */
	CENSUS_COUNT_KNOWN,
	CENSUS_COUNT_UNREADABLE, /* the count changed during the reading, or is no number of steps */
	CENSUS_COUNT_ON_DEVICE,	 /* the count is a tensor on a GPU, which is not read */
};

#define CENSUS_COUNTERS 16

/* An optimizer, and the number of its steps as it counts them itself. */
struct census_optimizer {
	uint64_t obj;	     /* address in the target */
	uint64_t begin, end; /* when the count was read; census_opts.clock, ns */
	uint64_t count; /* the highest count of its parameters, whose counts differ within a step */
	uint8_t status; /* enum census_count */
	/* n tensors that hold this count: address and c10::ScalarType of each. None if the count is
	 * a Python int. */
	uint8_t dtype[CENSUS_COUNTERS];
	uint64_t at[CENSUS_COUNTERS];
	size_t n;
};

/* Whether Python's garbage collector runs by itself. */
enum census_gc { CENSUS_GC_UNKNOWN, CENSUS_GC_ON, CENSUS_GC_OFF };

struct census_state {
	struct census_tensor *tensors; /* by device, then by address */
	size_t ntensors;
	struct census_device *devices;
	size_t ndevices;
	struct census_memory *memory; /* with census_opts.memory, in any order; may overlap */
	size_t nmemory;
	struct census_optimizer *counts; /* one for each optimizer */
	size_t ncounts;
	struct census_model *models; /* with tensors, by bytes, largest first */
	size_t nmodels;
	bool models_reached; /* the reading searched for variables that lead to models */
	enum census_gc gc;
	struct census_front *fronts;
	size_t nfronts;
	struct map64 *module_roots; /* module -> root of the model that it is in */
	struct census_about *about; /* properties of all tensors */
	size_t nabout;
	char *text;		      /* private: all texts */
	struct map64 *params;	      /* private: TensorImpl -> index of its storage in tensors */
	struct map64 *param_storages; /* private: TensorImpl -> its StorageImpl */
	uint64_t storage_at;	      /* private: offset of the storage pointer in a TensorImpl */
	uint64_t modules, optimizers, objects; /* numbers found; objects: all Python objects */
	uint64_t torn;	     /* tensors that changed during the reading, and were left out */
	uint64_t ended;	     /* Python objects that ended during the reading */
	uint64_t unreadable; /* tensors that could not be read or failed a check */
	/* A list of objects, a module or an optimizer changed: tensors may be missing. */
	bool torn_lists;
	/* The search for holders did not examine all containers, so a tensor may lack its holder. */
	bool holders_cut;
	bool know_grad;	     /* the place of a tensor's gradient is known */
	uint64_t begin, end; /* start and end of the reading, CLOCK_MONOTONIC, ns */
};

/*
 * Borrows py, which must outlive the result. need_torch: a program without PyTorch is an error;
 * otherwise only its other memory is found (census_opts.memory), and its tensors once it has
 * imported PyTorch. NULL with errno and *why, a static text. ENOENT: torch is not imported.
 * ENOTSUP: a free-threaded Python (census__no_lists). EAGAIN: the lists of the garbage collector
 * were not found; see pygc__find(), also for within_ns. ESRCH: the process or its Python has ended.
 * Or ENOMEM, EPERM.
 */
struct census *census__open(const struct python *py, bool need_torch, uint64_t within_ns,
			    const char **why);
#define CENSUS_WITHIN_NS 3000000000ull	  /* within_ns of a command that reads once */
void census__free(struct census *census); /* accepts NULL */
/* Why tensors of a free-threaded Python have no names. */
extern const char census__no_lists[];
/* Why census__read() has nothing to read: no failure. */
extern const char census__no_tensor[];

struct census_opts {
	bool named_only;   /* leave out tensors of CENSUS_OTHER without a name */
	bool memory;	   /* also fill census_state.memory; ignored with named_only */
	uint64_t limit_ns; /* CPU time; a busy machine makes the reading last longer */
	/* Called every few milliseconds; NULL: none. True ends the reading with -ECANCELED. */
	bool (*cancelled)(void *ctx);
	void *ctx;
	uint64_t (*clock)(
		void); /* clock of census_optimizer.begin and end; NULL: clock__monotonic() */
};

/*
 * Reads all tensors into *ret. May run on a thread of its own. 0, or an error with *why (static
 * text). -EAGAIN: no tensors yet, or too few to find their layout. -ENOTSUP: unknown layout. Or
 * -ETIME, -ESRCH, -EPERM, -ENOMEM, -ECANCELED.
 */
int census__read(struct census *census, const struct census_opts *opts, struct census_state *ret,
		 const char **why);
void census_state__free(struct census_state *state); /* frees its contents and zeroes it */
/* Writes "73 models of class Net, 16.00 MiB each: held by global best[*]", with names made
 * harmless. Returns buf. */
char *census_model__say(const struct census_state *state, const struct census_model *model,
			char *buf, size_t size);
/* Hash of the addresses and sizes of all storages with lasting roles: parameters, buffers,
 * optimizer state, cached keys and values. 0: there are none. */
uint64_t census_state__hash_lasting(const struct census_state *state);
/* Frees what census__param() does not need and keeps in tensors only storages with parameters.
 * Frees nothing if memory is short. */
void census_state__keep_params(struct census_state *state);

/* Storage of the parameter with this c10::TensorImpl address in the target. NULL: the census has no
 * such parameter, or the TensorImpl has another storage by now. */
const struct census_tensor *census__param(const struct census_state *state, const struct proc *proc,
					  uint64_t impl);

/*
 * The job's numbers of the recorded steps. Optimizers such as Adam count their steps, and
 * checkpoints keep the count. An offset is such a count minus the number of recorded steps that have
 * ended. It is the same at each moment. Only a reading between the count's increment and the end of
 * that step gives an offset that is one too high: of two neighbouring offsets the smaller is right.
 */

struct census_optimizer;
struct job_steps;

struct job_steps *job_steps__new(void); /* NULL: out of memory */
void job_steps__free(struct job_steps *steps);

/*
 * Parses an element of a tensor that holds a count. dtype: c10::ScalarType. raw: 8 bytes of the
 * target, hostile. False: the element is no count, because it is not whole, negative, or so large
 * that adding 1 does not change it, or because the dtype is another one.
 */
bool job_steps__parse(uint8_t dtype, const void *raw, uint64_t *ret);
/* Bytes of an element of a dtype that job_steps__parse() knows; 0: another dtype. */
unsigned job_steps__item_size(uint8_t dtype);

/* Reports the end of a recorded step. All times here are ns of one clock. Ends are reported in
 * order, but late. So a reading counts only after a later end was reported, or after
 * job_steps__settle(). */
void job_steps__ended(struct job_steps *steps, uint64_t time);
/* Ends of steps were lost, so numbers of later steps are not known. */
void job_steps__lost(struct job_steps *steps);
/* Reports a census's counts of the process's n optimizers. Copies them. */
void job_steps__read(struct job_steps *steps, const struct census_optimizer *v, size_t n);
/* True if it is time for job_steps__read_again(): after the end of a step, and without one at
 * intervals that double. */
bool job_steps__is_due(const struct job_steps *steps, uint64_t now);
/* True if job_steps__read_again() has a count to read, and there were few readings so far. */
bool job_steps__has_few(const struct job_steps *steps);
/* Reads the counts of the last job_steps__read() again, from the same addresses of the process. */
void job_steps__read_again(struct job_steps *steps, const struct proc *proc,
			   uint64_t (*clock)(void *ctx), void *ctx);
/* Says that the ends of all steps before the readings so far were reported, so that these count. */
void job_steps__settle(struct job_steps *steps);

/* Sets *ret to the job's number, from 1 on, of the first recorded step that ended. False: it is not
 * known, for the reason *why (static text). */
bool job_steps__first(const struct job_steps *steps, uint64_t *ret, const char **why);
