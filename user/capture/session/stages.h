/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The stages between the decoder and the capture's sink. A session connects them once, when it
 * attaches. Each is a struct sink that passes events on to the next one, in the same order:
 *
 *   decoder (decoder.h) -> census_stage -> attach_stage -> sleep_stage -> sink
 *
 * Stages read the process themselves, too, and add events about what they read. A reading holds for
 * a moment in the past: the session first brings in all records up to its end, then lets the stage
 * take it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct decoder;
struct target;
struct attach_stage;
struct census_stage;
struct sleep_stage;

/* Each stage struct begins with the sink that takes the events of the stage before. */
static inline struct sink *attach_stage__sink(struct attach_stage *stage)
{
	return (struct sink *)stage;
}

static inline struct sink *census_stage__sink(struct census_stage *stage)
{
	return (struct sink *)stage;
}

static inline struct sink *sleep_stage__sink(struct sleep_stage *stage)
{
	return (struct sink *)stage;
}

/*
 * Finds the blocks and segments of the CUDA allocator when the probes were attached, from its own
 * tables. Events wait in this stage until that is known. Later it tells which
 * stream and pool new segments belong to.
 */

/* Borrows target and facts. tables: read the allocator's tables. NULL: out of memory. */
struct attach_stage *attach_stage__new(struct target *target, struct facts *facts, bool tables);
void attach_stage__free(struct attach_stage *stage); /* NULL is fine */
/* Sets the capture's sink, which gets the events from now on; borrowed. NULL, as at first: none. */
void attach_stage__send_to(struct attach_stage *stage, struct sink *next);
uint64_t attach_stage__events(const struct attach_stage *stage); /* passed on so far */
/* Reads the tables before the probes are attached: later readings do not see segments that are
 * given back meanwhile. 0 or -ENOMEM. */
int attach_stage__hint(struct attach_stage *stage);
/* Begins to hold events and reads the tables. Call it when the probes are attached. 0 or -ENOMEM. */
int attach_stage__begin(struct attach_stage *stage);
/*
 * As attach_stage__begin(), for a forked process. If its parent has used CUDA, the tables are a
 * copy and the memory is the parent's: events of such blocks are dropped and counted
 * (counter.cuda_copies).
 */
int attach_stage__begin_forked(struct attach_stage *stage, const struct target *parent);
/*
 * Reads the tables if it is time to; now: ns since start. 1: bring in all records written until
 * now, then call attach_stage__take(). 0: nothing to do. Negative: -ENOMEM or a sink's error.
 */
int attach_stage__read(struct attach_stage *stage, uint64_t now);
/* Reads new segments a last time, before the probes are removed. 1: bring in all records, then call
 * attach_stage__take(). 0: nothing to do. Negative: -ENOMEM. */
int attach_stage__read_last(struct attach_stage *stage, uint64_t now);
/* Passes on the reading of attach_stage__read(). whole: all records up to that reading came in. 0,
 * -ENOMEM or a sink's error. */
int attach_stage__take(struct attach_stage *stage, bool whole, uint64_t now);
/* True if the stage holds no events: the state at attach is known, or will never be. */
bool attach_stage__settled(const struct attach_stage *stage);
/* After the last record: passes on the events held. 0, -ENOMEM or a sink's error. */
int attach_stage__finish(struct attach_stage *stage);

/*
 * Finds which tensor is a parameter, gradient or optimizer state, in the program's objects
 * (inspect/census.h): at attach, after the first optimizer steps, every 10 s, and at the end. While
 * the lasting ones stay the same, readings come less often. Readings run on a thread of their own,
 * which shares nothing with the session until it ends. Also tells the decoder's autograd nodes the
 * name of the parameter they accumulate for.
 */

/* Borrows decoder and `next`. NULL: out of memory. */
struct census_stage *census_stage__new(struct decoder *decoder, struct sink *next);
/* Lets the decoder's autograd nodes get names of parameters; again when it has opened them later. */
void census_stage__name_parameters(struct census_stage *stage);
void census_stage__free(struct census_stage *stage); /* ends a reading under way; NULL is fine */
/* Time until the next reading, in ns. unchanged: readings in a row that found the same lasting
 * tensors. took: CPU time of the last reading, in ns. */
uint64_t census_stage__pause(unsigned unchanged, uint64_t took);
/* Begins a reading if it is time to and none is under way; now: ns since start. Call it only when
 * the state at attach is known. */
void census_stage__begin(struct census_stage *stage, uint64_t now);
/* Reads the optimizers' step counts, which are a few words, if that is due after the end of a step.
 * now: ns since start. 0 or -ENOMEM. */
int census_stage__look(struct census_stage *stage, uint64_t now);
/* Reads the optimizers' step counts once more, at the end of a capture that has read them only a
 * few times. False: it has read them often enough, or the process has ended. */
bool census_stage__look_last(struct census_stage *stage);
/* Call it when all records up to the last census_stage__look_last() came in. 0 or -ENOMEM. */
int census_stage__end_looks(struct census_stage *stage);
/* Call it when records about ends of steps were lost: the numbers of steps are not known then. */
void census_stage__lost_steps(struct census_stage *stage);
/*
 * Begins the last reading, before the probes are removed. They may go as soon as its tensors are
 * read; the ledger (the sheet of host memory) may come later, by census_stage__take_ledger(). If
 * the capture ended after the requested steps, the reading is of the blocks that stayed since then,
 * and there is no ledger.
 */
void census_stage__begin_last(struct census_stage *stage);
/* True while a reading is under way; in the last one, while it reads tensors. */
bool census_stage__reads(const struct census_stage *stage);
/*
 * 1: a reading has ended; bring in all records written until now, then call census_stage__take().
 * 0: none has. -ENOMEM: a reading failed for lack of memory.
 */
int census_stage__end(struct census_stage *stage);
/* Passes on the reading. whole: all records up to its end came in, and the process ran the same
 * program all the time; otherwise drops it. 0, -ENOMEM or a sink's error. */
int census_stage__take(struct census_stage *stage, bool whole);
/* True until the ledger of the last reading is there. */
bool census_stage__reads_ledger(const struct census_stage *stage);
/* Makes a reading under way end soon, without a result. */
void census_stage__give_up(struct census_stage *stage);
/* Passes on the ledger of the last reading, as of the capture's end at the latest; end: ns since
 * start. Waits for the reading's end, so call it when census_stage__reads_ledger() is false. Passes
 * on nothing without a last reading, or unless whole: it may have read another program. 0, -ENOMEM
 * or a sink's error. */
int census_stage__take_ledger(struct census_stage *stage, bool whole, uint64_t end);

/*
 * Emits an EVENT_MARK when code other than PyTorch's allocator has unmapped the memory that live
 * tensors are in, or has mapped memory there again: "memory unmapped: 1.20 GiB (sleep)", "memory
 * mapped again: 1.20 GiB (wake-up)". Many calls make one such transition. Its mark comes 0.1 s
 * after the last call if no memory is left to change, otherwise 1 s after it.
 */

/* Borrows decoder. NULL: out of memory. */
struct sleep_stage *sleep_stage__new(struct decoder *decoder);
void sleep_stage__free(struct sleep_stage *stage); /* NULL is fine */
/* Sets the capture's sink, which gets the events from now on; borrowed. NULL, as at first: none. */
void sleep_stage__send_to(struct sleep_stage *stage, struct sink *next);
/* Emits the mark of a transition that is over. All events before now must have come; now: ns since
 * start. 0, -ENOMEM or the sink's error. */
int sleep_stage__pump(struct sleep_stage *stage, uint64_t now);
/* After the last event: emits the mark of a transition under way. 0, -ENOMEM or the sink's error. */
int sleep_stage__finish(struct sleep_stage *stage);
