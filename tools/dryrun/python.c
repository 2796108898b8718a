// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Finds a thread's line of Python with the interpreter's own functions: Python 3.8 or later, in the
 * program or in a library. A program without Python has none.
 *
 * PyTorch releases the GIL for copies to the host and takes it again afterwards. Taking it here
 * cannot deadlock: neither this library nor PyTorch holds a lock during such a copy.
 */
#include "depends.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#define MAX_FRAMES 64

typedef void object; /* PyObject and its subtypes */

static struct {
	int (*initialized)(void), (*finalizing)(void);
	void *(*this_thread)(void);
	int (*ensure)(void);
	void (*release)(int);
	object *(*frame)(void);
	object *(*back)(object *), *(*code)(object *); /* NULL before 3.9 */
	int (*line)(object *);
	object *(*attribute)(object *, const char *);
	const char *(*utf8)(object *, ssize_t *);
	void (*get)(object *), (*put)(object *);
	void (*fetch)(object **, object **, object **);
	void (*restore)(object *, object *, object *);
	void (*clear)(void);
	object *(*variable)(object *, const char *); /* NULL before 3.12 */
	object *(*entry)(object *, const char *), *(*item)(object *, ssize_t);
	void (*empty)(object *);
	long long (*number)(object *);
} py;

static bool usable;

struct held { /* the GIL, and the error that the program has set */
	object *type, *value, *trace;
	int state;
};

static void *find(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void find_all(void)
{
	static const struct {
		const char *name;
		void *at;
		bool optional;
	} names[] = {
		{ "Py_IsInitialized", &py.initialized, false },
		{ "PyGILState_GetThisThreadState", &py.this_thread, false },
		{ "PyGILState_Ensure", &py.ensure, false },
		{ "PyGILState_Release", &py.release, false },
		{ "PyEval_GetFrame", &py.frame, false },
		{ "PyFrame_GetBack", &py.back, true },
		{ "PyFrame_GetCode", &py.code, true },
		{ "PyFrame_GetLineNumber", &py.line, false },
		{ "PyObject_GetAttrString", &py.attribute, false },
		{ "PyUnicode_AsUTF8AndSize", &py.utf8, false },
		{ "Py_IncRef", &py.get, false },
		{ "Py_DecRef", &py.put, false },
		{ "PyErr_Fetch", &py.fetch, false },
		{ "PyErr_Restore", &py.restore, false },
		{ "PyErr_Clear", &py.clear, false },
		{ "PyFrame_GetVarString", &py.variable, true },
		{ "PyMapping_GetItemString", &py.entry, false },
		{ "PySequence_GetItem", &py.item, false },
		{ "PyDict_Clear", &py.empty, false },
		{ "PyLong_AsLongLong", &py.number, false },
	};
	void *at;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		at = find(names[i].name);
		if (!at && !names[i].optional)
			return;
		memcpy(names[i].at, &at, sizeof(at));
	}
	at = find("Py_IsFinalizing") ?: find("_Py_IsFinalizing");
	memcpy(&py.finalizing, &at, sizeof(at));
	usable = at != NULL;
}

static object *take(object *from, const char *name)
{
	object *got = py.attribute(from, name);

	if (!got)
		py.clear();
	return got;
}

static void take_text(object *from, const char *name, const char *other, char *to, size_t size)
{
	object *text = take(from, name) ?: take(from, other);
	const char *utf8 = text ? py.utf8(text, NULL) : NULL;

	if (text && !utf8)
		py.clear(); /* not a string, or a string with a lone surrogate */
	snprintf(to, size, "%s", utf8 ?: "");
	if (text)
		py.put(text);
}

static void read_place(object *frame, struct place *place)
{
	object *code = py.code ? py.code(frame) : take(frame, "f_code");

	*place = (struct place){ .line = py.line(frame) };
	if (code) {
		take_text(code, "co_filename", "co_filename", place->file, sizeof(place->file));
		take_text(code, "co_qualname", "co_name", place->function, sizeof(place->function));
		py.put(code);
	}
}

/* A new reference, or NULL. */
static object *caller(object *frame)
{
	object *back = py.back ? py.back(frame) : take(frame, "f_back");
	static object *none;

	if (py.back || !back)
		return back;
	if (!none)
		none = find("_Py_NoneStruct");
	if (back != none)
		return back;
	py.put(back);
	return NULL;
}

/* True for PyTorch's own Python code, generated code and built-in modules. */
static bool is_torch(const char *file, const char *torch)
{
	return (*torch && !strncmp(file, torch, strlen(torch))) ||
	       strstr(file, "-packages/torch/") || strstr(file, "/torchinductor_") ||
	       strstr(file, "/inductor/") || !strncmp(file, "<frozen", 7) ||
	       !strncmp(file, "<eval_with_key>", 15);
}

static bool keeps(const char *file)
{
	static const char *const files[] = { "/torch/serialization.py", "/torch/_tensor_str.py",
					     "/torch/distributed/checkpoint/" };

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (strstr(file, files[i]))
			return true;
	return false;
}

/* GIL held, no error set. */
static bool walk(const char *torch, struct python_read *read)
{
	object *frame = py.frame(), *back; /* borrowed reference */
	bool found = false;

	if (!frame)
		return false;
	py.get(frame);
	for (int depth = 0; frame && !found && depth < MAX_FRAMES; depth++) {
		read_place(frame, &read->user);
		if (!depth)
			read->inner = read->user;
		found = !is_torch(read->user.file, torch);
		if (!found && keeps(read->user.file))
			read->purpose = READ_TO_KEEP;
		back = caller(frame);
		py.put(frame);
		frame = back;
	}
	if (frame)
		py.put(frame);
	if (!found)
		read->user = read->inner;
	return true;
}

/* A local variable of a frame, a new reference; NULL: there is none. */
static object *local(object *frame, const char *name)
{
	object *all, *found;

	if (py.variable) {
		found = py.variable(frame, name);
	} else {
		/* The frame keeps this dictionary, and with it tensors that the function deletes. */
		all = take(frame, "f_locals");
		if (!all)
			return NULL;
		found = py.entry(all, name);
		if (!found)
			py.clear();
		py.empty(all);
		py.put(all);
		return found;
	}
	if (!found)
		py.clear();
	return found;
}

/* GIL held, no error set. */
static bool read_local(object *frame, const char *variable, const char *attribute, int item,
		       int64_t *number)
{
	object *at = local(frame, variable), *next;

	if (at && attribute) {
		next = take(at, attribute);
		py.put(at);
		at = next;
	}
	if (at && item >= 0) {
		next = py.item(at, item);
		py.put(at);
		at = next;
	}
	if (!at) {
		py.clear();
		return false;
	}
	*number = py.number(at);
	py.put(at);
	if (*number == -1)
		py.clear(); /* not a number, or a negative one */
	return *number >= 0;
}

#define CALLERS 4

static object *frame_of(const char *function)
{
	object *frame = py.frame(), *back;
	struct place place;
	const char *name;

	if (frame)
		py.get(frame);
	for (int depth = 0; frame && depth <= CALLERS; depth++) {
		read_place(frame, &place);
		name = strrchr(place.function, '.');
		if (!strcmp(name ? name + 1 : place.function, function))
			return frame;
		back = caller(frame);
		py.put(frame);
		frame = back;
	}
	if (frame)
		py.put(frame);
	return NULL;
}

/* Takes the GIL and sets an error of the program aside. False: no Python runs in this thread. */
static bool begin(struct held *held)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_all);
	if (!usable || !py.initialized() || py.finalizing() || !py.this_thread())
		return false;
	held->state = py.ensure();
	py.fetch(&held->type, &held->value, &held->trace);
	return true;
}

static void end(struct held *held)
{
	py.restore(held->type, held->value, held->trace);
	py.release(held->state);
}

bool python__local(const char *function, const char *variable, const char *attribute, int item,
		   int64_t *number)
{
	struct held held;
	object *frame;
	bool found;

	if (!begin(&held))
		return false;
	frame = frame_of(function);
	found = frame && read_local(frame, variable, attribute, item, number);
	if (frame)
		py.put(frame);
	end(&held);
	return found;
}

bool python__where(const char *torch, struct python_read *read)
{
	struct held held;
	bool found;

	*read = (struct python_read){ .purpose = READ_FOR_USE };
	if (!begin(&held))
		return false;
	found = walk(torch, read);
	end(&held);
	return found;
}
