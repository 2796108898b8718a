// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Figures of the selection by row, and grouping of rows. An additional last row is memory from before attach without
// attribution.
"use strict";
(() => {
	const { state } = Page;
	const UNKNOWN = { stack: -1, file: "", line: 0, function: "", module: "", module_class: "", phase: "", category: "unknown",
		source: "census", name: "", thread: "", before_attach: true, nothing: true };
	const MEASURES = {
		allocated: ["Allocated", "allocated in the window"],
		kept: ["Kept", "allocated in the window and still live at its end"],
		grew: ["Growth", "difference between the end and the beginning of the window"],
		live: ["Live at its end", "live at the end of the window"],
	};
	let rows = [], byCache = new Map(), mask = null, masked = null, last = null, lastKey = "";

	function opened() {
		const data = Page.data;
		// Memory from before attach has no stack but a note, and the name of what holds it. These have negative numbers.
		Page.frames = data.frames.slice();
		const note = name => Page.frames.push({ name, file: "", line: 0, kind: "note" }) - 1;
		const before = note(`[${Words.before()}]`), made = [Int32Array.of(before)], of = new Map();
		const stackOf = holder => {
			if (!of.has(holder))
				of.set(holder, -made.push(Int32Array.of(before, note(holder))));
			return of.get(holder);
		};
		rows = [...data.rows.map(r => r.before_attach ? { ...r, stack: r.holder ? stackOf(r.holder) : -1 } : r), UNKNOWN];
		Page.rows = rows;
		Page.stack = id => id < 0 ? made[-1 - id] : data.stack(id);
	}

	// Mask of rows that pass the filter; null: all.
	function maskOf() {
		if (masked === state.filter)
			return mask;
		masked = state.filter;
		const { terms, test } = Page.filter.compile(state.filter);
		mask = terms.length ? Uint8Array.from(rows, r => test(r) ? 1 : 0) : null;
		return mask;
	}

	function withLast(array, type, value) {
		const out = new type(rows.length);
		out.set(array);
		out[rows.length - 1] = value;
		return out;
	}

	function windowFigures(measure) {
		const w = Page.data.window(state.device, state.from, state.moment);
		const a = Page.data.figures(state.device, state.from), b = Page.data.figures(state.device, state.moment), n = rows.length;
		let bytes, count;
		if (measure === "grew") {
			bytes = new Float64Array(n);
			count = new Float64Array(n);
			for (let i = 0; i < n - 1; i++) {
				bytes[i] = w.allocated[i] - w.freed[i];
				count[i] = w.allocs[i] - w.frees[i];
			}
			bytes[n - 1] = b.unknown - a.unknown;
		} else {
			bytes = withLast(measure === "kept" ? w.kept : w.allocated, Float64Array, 0);
			count = withLast(measure === "kept" ? w.keptCount : w.allocs, Float64Array, 0);
		}
		return { bytes, count, begin: a, end: b };
	}

	// Returns {bytes, count (by row, filtered), all (sum before the filter), sum (after it), measure, allocated,
	// reserved, begin, end}.
	function figures() {
		const measure = state.from === null ? "live" : state.measure;
		const key = [state.device, state.moment, state.from, measure, state.filter].join("\n");
		if (key === lastKey)
			return last;
		let f;
		if (measure === "live") {
			const l = Page.data.live(state.device, state.moment);
			f = { bytes: withLast(l.bytes, Float64Array, l.unknown), count: withLast(l.count, Float64Array, 0) };
			f.end = { allocated: l.allocated, reserved: l.reserved, unknown: l.unknown };
			f.begin = state.from === null ? null : Page.data.figures(state.device, state.from);
		} else {
			f = windowFigures(measure);
		}
		f.measure = measure;
		f.all = 0;
		f.sum = 0;
		const pass = maskOf();
		for (let i = 0; i < rows.length; i++) {
			f.all += f.bytes[i];
			if (pass && !pass[i])
				f.bytes[i] = f.count[i] = 0;
			f.sum += f.bytes[i];
		}
		last = f;
		lastKey = key;
		return f;
	}

	// ---- groups of rows

	const base = file => (file ?? "").slice((file ?? "").lastIndexOf("/") + 1);
	const KEYS = {
		line: r => [r.file, r.line, r.function, r.phase, r.category, r.before_attach ? r.source : "", r.before_attach ? r.holder ?? r.name : "", r.nothing],
		category: r => [r.category, r.nothing],
		module: r => [r.module, r.module_class, r.module_root, r.nothing],
		scope: r => [r.scope, r.before_attach, r.nothing],
		stack: r => [r.stack, r.phase, r.category, r.before_attach ? r.holder ?? r.name : ""],
	};

	function placeOf(r) {
		if (r.before_attach)
			return r.holder || r.name || Words.unheld();
		if (r.file || r.function)
			return base(r.file) + (r.line ? ":" + r.line : "") + (r.function ? " (" + r.function + ")" : "");
		return r.source === "native" ? "native thread (no Python)" : "untraced";
	}

	// Common form of module names: blocks.*.mlp
	function common(names) {
		const list = [...names];
		if (list.length === 1)
			return list[0];
		const split = list.map(n => n.split("."));
		if (split.some(s => s.length !== split[0].length))
			return "";
		const parts = split[0].map((p, i) => split.every(s => s[i] === p) ? p : "*");
		return parts.every(p => p === "*") ? "" : parts.join(".");
	}

	// Names of a group: those of the rows in `of`, which hold memory of the selection.
	function name(g, of) {
		g.modules = new Set();
		g.classes = new Set();
		g.categories = new Set();
		g.places = new Set();
		for (const i of of) {
			const r = rows[i];
			g.modules.add(r.module ?? "");
			g.classes.add(r.module_class ?? "");
			g.categories.add(r.category);
			if (g.places.size < 9)
				g.places.add(placeOf(r));
		}
		g.class = g.classes.size === 1 ? rows[of[0]].module_class : "";
		g.moduleName = common(g.modules);
		g.module = moduleOf(g);
		g.place = g.places.size === 1 ? [...g.places][0] : `(${g.places.size > 8 ? "many" : g.places.size} places)`;
		g.category = g.categories.size === 1 ? rows[of[0]].category : "";
	}

	// The module of a group: blocks.*.mlp (MLP) ×4.
	function moduleOf(g) {
		if (g.row.nothing)
			return "";
		const name = g.moduleName, cls = g.class;
		if (g.modules.size === 1)
			return Words.module({ module: name, module_class: cls });
		if (name)
			return `${Words.module({ module: name, module_class: cls })} ×${g.modules.size}`;
		return g.modules.size <= 3 ? [...g.modules].sort().map(m => m || "(no module)").join(", ") + (cls ? ` (${cls})` : "") : `(${g.modules.size} modules)`;
	}

	// Returns {of: group of each row, list: [{row, of}]}. grouped() adds {modules, module, places, place, categories, category}.
	function groups(by) {
		if (byCache.has(by))
			return byCache.get(by);
		const of = new Int32Array(rows.length), list = [], seen = new Map();
		rows.forEach((r, i) => {
			const key = KEYS[by](r).join("\u0001");
			let g = seen.get(key);
			if (g === undefined) {
				seen.set(key, g = list.length);
				list.push({ row: r, of: [] });
			}
			of[i] = g;
			list[g].of.push(i);
		});
		const made = { of, list };
		byCache.set(by, made);
		return made;
	}

	// The tensors of a group of memory from before attach, by name, as groups of their own.
	function parts(g) {
		if (!g.row.before_attach || !g.row.holder)
			return null;
		if (!g.parts) {
			const by = new Map();
			for (const i of g.of) {
				const r = rows[i], key = [r.name, r.module, r.category].join("\u0001");
				if (!by.has(key))
					by.set(key, { row: r, of: [], category: r.category ?? "", categories: new Set([r.category]), modules: new Set([r.module ?? ""]),
						moduleName: r.module ?? "", module: Words.module(r), place: r.name ?? "", places: new Set() });
				by.get(key).of.push(i);
			}
			g.parts = [...by.values()];
		}
		return g.parts;
	}

	// Figures by group: {bytes, count, order: non-empty groups, largest first}.
	function grouped(by, f = figures()) {
		const { of, list } = groups(by);
		const bytes = new Float64Array(list.length), count = new Float64Array(list.length);
		for (let i = 0; i < of.length; i++)
			if (f.bytes[i] || f.count[i]) {
				bytes[of[i]] += f.bytes[i];
				count[of[i]] += f.count[i];
			}
		const order = [];
		for (let g = 0; g < list.length; g++)
			if (bytes[g] || count[g]) {
				order.push(g);
				name(list[g], list[g].of.filter(i => f.bytes[i] || f.count[i]));
			}
		order.sort((a, b) => Math.abs(bytes[b]) - Math.abs(bytes[a]) || a - b);
		return { bytes, count, order, list };
	}

	Object.assign(Page, { opened, figures, grouped, groups, parts, maskOf, placeOf, MEASURES });
})();
