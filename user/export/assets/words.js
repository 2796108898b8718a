// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Number formats and names shared by all pages, and descriptions of frames without a line.
"use strict";
const Words = (() => {
	const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

	function bytes(n) {
		if (n < 0)
			return "\u2212" + bytes(-n);
		if (n < 1024)
			return n + " B";
		let i = -1;
		do {
			n /= 1024;
			i++;
		} while (n >= 1023.995 && i < UNITS.length - 1);
		return n.toFixed(i === 0 || n >= 1000 ? 1 : 2) + " " + UNITS[i];
	}

	const number = new Intl.NumberFormat("en-US");
	const count = n => number.format(n);
	const blocks = n => n ? count(n) + (n === 1 ? " block" : " blocks") : "";

	function percent(part, whole) {
		const p = whole ? 100 * part / whole : 0;
		return (p > 0 && p < 0.01 ? "<0.01" : p.toFixed(p < 10 ? 2 : 1)) + " %";
	}

	// A share as a number without its unit, for a column: 29, 3.4, <0.1.
	function share(part, whole) {
		const p = whole ? 100 * Math.abs(part) / whole : 0;
		return p > 0 && p < 0.1 ? "<0.1" : p.toFixed(p < 9.95 && p > 0 ? 1 : 0);
	}

	// 0.18 s, 45.1 s, 2m 01s, 1h 02m. apart: a difference from another time that the text must show.
	function seconds(s, apart = 0) {
		if (s >= 3600 && !apart) {
			const m = Math.round(s / 60);
			return Math.floor(m / 60) + "h " + String(m % 60).padStart(2, "0") + "m";
		}
		if (s >= 119.95 && !(apart && apart < 1)) {
			const whole = Math.round(s);
			return Math.floor(whole / 60) + "m " + String(whole % 60).padStart(2, "0") + "s";
		}
		const least = s < 9.995 ? 2 : 1, finest = apart || (s < 0.095 ? s : 1);
		return s.toFixed(finest > 0 ? Math.max(least, Math.min(9, 1 - Math.floor(Math.log10(finest)))) : least) + " s";
	}

	// The names that people read; files, filters and the API keep those of the recording.
	const ROLES = { unknown: "no role found", kv_cache: "KV cache", ddp_bucket: "DDP bucket" };
	const role = category => ROLES[category || "unknown"] ?? category.replaceAll("_", " ");
	const phase = name => name === "other" ? "between phases" : name === "data" ? "data loading" : name ?? "";
	const inPhase = name => name && name !== "other" ? "in " + phase(name) : phase(name);
	// Steps are numbered from 0 in the data and from 1 for people.
	const step = i => "step " + count(i + 1);
	const more = (n, one = "row", many = one + "s") => `+ ${count(n)} more ${n === 1 ? one : many}`;

	// blocks.0.mlp (MLP); the root module by its class: GPT (model).
	function module({ module: name, module_class: cls }) {
		if (name)
			return cls ? `${name} (${cls})` : name;
		return cls ? cls + " (model)" : "(no module)";
	}

	// Another process on a device, as words__neighbour() in C has it.
	function neighbour({ pid, bytes: held, user, command, container }) {
		const who = [`PID ${pid}`, user && `user ${user}`, container && `container ${container}`].filter(Boolean).join(", ");
		return `${command ?? "no such process"} (${who})${held === null ? "" : " " + bytes(held)}`;
	}

	// Fields of a filter with examples, for people.
	const FIELDS = [
		["attention", "any of the fields has this word"],
		["line:train.py:57", "file, or file and line"], ["func:forward", "function"],
		["module:blocks.*.mlp", "module and everything inside it"], ["class:Linear", "class of the module"],
		["role:activation", "role"], ["phase:backward", "phase"],
		["name:history", "tensor or variable, where no line is known"],
		["thread:, source:", "thread; how the line was found"],
		["a|b", "one of them"], ["-role:input", "not"],
	];

	// What memory from before the first event is called; words__before() in C. at: attached_at of a document's capture.
	let first = "before attach";
	const began = at => { first = at === "history" ? "before the history" : "before attach"; };
	const before = () => first;

	// Memory from before attach that no object was found for.
	const UNHELD = "held by no Python object";
	// The place of such memory. Nobody looks for the objects of a snapshot.
	const unheld = () => first === "before attach" ? UNHELD : first;

	// Memory that no scope allocated; words__scope() in C.
	const OUTSIDE = "outside of scopes";

	// The sentence about what --cost left out.
	const detail = text => text ? text[0].toUpperCase() + text.slice(1) : "";

	// The command line of a recording: { facts, name }.
	function command({ facts, name }) {
		let words = null;
		try {
			words = JSON.parse(facts.cmdline);
		} catch {
			// not JSON: use the text
		}
		// The path of the interpreter is left out.
		return Array.isArray(words) ? words.map((w, i) => i ? w : w.slice(w.lastIndexOf("/") + 1)).join(" ") : facts.cmdline ?? facts.comm ?? name;
	}

	// The host memory of a report's `host` at its highest reading: a short text, and its parts, largest first.
	function host({ highest }) {
		const parts = Object.values(highest.parts).filter(p => p.of_rss && p.bytes).sort((a, b) => b.bytes - a.bytes);
		return [`RSS ${bytes(highest.rss)}`, `Host memory at ${seconds(highest.time)}, the highest reading: ` +
			parts.map(p => `${p.label} ${bytes(p.bytes)} (${percent(p.bytes, highest.rss)})${p.second ? `, ${bytes(p.second)} ${p.second_label}` : ""}`).join("; ")];
	}

	const NOTES = {
		"[before attach]": "Allocated before attach: no stack was recorded.",
		"[before the history]": "Allocated before the history of the snapshot began: it has no stack.",
		"[backward, no Python frame]": "Allocated by the autograd engine on a thread that has no Python frames.",
		"[native thread]": "Allocated on a thread that runs no Python.",
		"[stack unreadable]": "The Python frames could not be read at that moment.",
		"[Python stacks not read]": "Python stacks were not read in this capture.",
		"[outer frames cut off]": "The stack is deeper than the recording keeps; its outermost frames are missing.",
		"[outer frames unreadable]": "The outermost frames of this stack could not be read at that moment.",
		"[frame without a name]": "The code object of this frame was gone before its name could be read.",
		"[smaller stacks]": "Stacks too small and too many to be shown one by one.",
	};

	return { began, before, unheld, bytes, count, blocks, percent, share, seconds, role, phase, inPhase, step, more, module, neighbour, detail, command, host, FIELDS, NOTES, UNHELD, OUTSIDE };
})();
