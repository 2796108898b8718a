// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The filter box: terms as report --filter has them (docs/REPORT.md), all of which must hold. While one types, the
// beginning of a category, phase or source will do. stack: is only here, for any frame; size: is not, since a row of the
// page is blocks of any size.
"use strict";
(() => {
	const KEYS = { text: "", line: "line", file: "line", func: "function", function: "function", module: "module", class: "module_class",
		category: "category", phase: "phase", source: "source", thread: "thread", name: "name", stack: "stack" };

	// One value, up to a | outside of quotes; what is left of the text.
	function value(text) {
		let out = "", quoted = false, i = 0;
		for (; i < text.length && (quoted || !/[\s|]/.test(text[i])); i++)
			if (text[i] === '"')
				quoted = !quoted;
			else
				out += text[i];
		return [out.toLowerCase(), text.slice(i)];
	}

	// [{not, key, values}]. A key that is not one of ours is a word with a colon.
	function parse(text) {
		const terms = [];
		let rest = text.trim(), v;
		while (rest) {
			const [all, not, key] = /^([-!]?)(?:([a-z]+):)?/.exec(rest), known = key !== undefined && key in KEYS;
			rest = rest.slice(known ? all.length : not.length);
			const values = [];
			do {
				[v, rest] = value(rest);
				values.push(v);
			} while (rest.startsWith("|") && (rest = rest.slice(1)) !== null);
			rest = rest.trimStart();
			if (known || values.some(x => x))
				terms.push({ not: not !== "", key: known ? KEYS[key] : "", values });
		}
		return terms;
	}

	// blocks.3 is in blocks.3.mlp and in encoder.blocks.3, and not in blocks.31; * and ? are text and a character of a part.
	function moduleTest(wanted) {
		if (!wanted)
			return m => !m;
		const parts = wanted.split(".").map(p => p.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^.]*").replace(/\?/g, "[^.]"));
		const re = new RegExp("(^|\\.)" + parts.join("\\.") + "($|\\.)");
		return m => re.test(m);
	}

	// A path has it in it; with a number, the line is that one.
	function lineTest(wanted) {
		const at = /^(.*?):?(\d+)$/.exec(wanted), file = at ? at[1] : wanted, line = at ? Number(at[2]) : 0;
		if (!wanted)
			return r => !r.file;
		return r => !!r.file && r.file.toLowerCase().includes(file) && (!line || r.line === line);
	}

	function testOf(key, wanted) {
		switch (key) {
		case "module": {
			const test = moduleTest(wanted);
			return r => test((r.module ?? "").toLowerCase());
		}
		case "line": return lineTest(wanted);
		case "category": case "phase": case "source":
			return r => wanted ? (r.before_attach && key === "phase" ? "" : r[key] ?? "").startsWith(wanted) : !r[key];
		case "": return r => textOf(r).includes(wanted);
		case "stack": return r => stackOf(r.stack).includes(wanted);
		default: return r => wanted ? (r[key] ?? "").toLowerCase().includes(wanted) : !r[key];
		}
	}

	// All that a row says; and what its frames are, for stack:. Rows of a stack share that text.
	const WORDS = ["function", "module", "module_class", "category", "phase", "name", "thread", "source", "node_class"];
	function textOf(r) {
		return r.words ??= [r.file ? r.file + (r.line ? ":" + r.line : "") : "", ...WORDS.map(k => r[k] ?? "")].join("\n").toLowerCase();
	}

	const stacks = new Map();
	function stackOf(id) {
		let text = stacks.get(id);
		if (text === undefined) {
			text = Array.from(Page.stack(id), i => {
				const f = Page.frames[i];
				return f.name + "\n" + (f.file ?? "") + (f.line ? ":" + f.line : "");
			}).join("\n").toLowerCase();
			stacks.set(id, text);
		}
		return text;
	}

	function compile(text) {
		const terms = parse(text), tests = terms.map(t => {
			const any = t.values.map(v => testOf(t.key, v));
			return r => any.some(test => test(r)) !== t.not;
		});
		return { terms, test: r => tests.every(test => test(r)) };
	}

	// A term as one would type it.
	function term(key, wanted) {
		return key + ":" + (/[\s"|]|^$/.test(wanted) ? `"${wanted.replace(/"/g, "")}"` : wanted);
	}

	// The line of a row, with as much of its path as no other file has in its own.
	let files = null;
	function line(r) {
		files ??= [...new Set(Page.rows.map(x => (x.file ?? "").toLowerCase()))];
		const parts = r.file.split("/"), paths = [parts[parts.length - 1]];
		for (let i = parts.length - 1; i > 0; i--)
			paths.push("/" + parts.slice(i).join("/"));
		const path = paths.find(p => files.filter(f => f.includes(p.toLowerCase())).length === 1) ?? r.file;
		return term("line", path + (r.line ? ":" + r.line : ""));
	}

	Page.filter = { compile, parse, term, line };
})();
