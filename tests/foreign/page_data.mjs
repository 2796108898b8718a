// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Answers questions about an exported page as its own script would, without a browser:
//   node page_data.mjs DATA.js PAGE.html < QUESTIONS > ANSWERS
// Questions and answers are JSON, a list each: {"ask": "at", "device": 0, "time": 1.5} and so on, see below.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { runInThisContext } from "node:vm";

const [script, page] = process.argv.slice(2);
if (!page) {
	console.error("usage: node page_data.mjs DATA.js PAGE.html < QUESTIONS");
	process.exit(64);
}
const Data = createRequire(import.meta.url)(resolve(script));
const html = readFileSync(page, "utf8");

function element(id) {
	const start = html.indexOf(`id="${id}">`) + `id="${id}">`.length;
	return html.slice(start, html.indexOf("</script>", start));
}

const head = JSON.parse(element("head")), begun = performance.now();
const data = await Data.open(head, element("data"));
const opened = performance.now() - begun;

const sum = a => a.reduce((x, y) => x + y, 0);
// As report has them: what was there before attaching has no line, and without one stands with all else of its module.
const groups = {
	line: r => r.before_attach ? ["before", r.module, r.module_class, r.category, r.name] :
		[r.file, r.file && r.line, r.function, r.module, r.module_class, r.phase, r.category, r.source],
	module: r => [r.module, r.module_class, r.module_root],
	category: r => [r.category],
	holder: r => [r.before_attach ? r.holder : "", r.before_attach && r.category],
	phase: r => [r.phase],
	thread: r => [r.thread, r.tid],
	stack: r => [...data.stack(r.stack)].map(i => data.frames[i].name),
};

// {key: {name: sum}} of what the arrays in parts have of each row.
function group(by, parts) {
	const all = new Map();
	data.rows.forEach((r, i) => {
		if (!Object.values(parts).some(a => a[i]))
			return;
		const key = JSON.stringify(groups[by](r)), at = all.get(key) ?? {};
		for (const [name, a] of Object.entries(parts))
			at[name] = (at[name] ?? 0) + a[i];
		all.set(key, at);
	});
	return [...all].map(([key, at]) => [JSON.parse(key), at]);
}

// The page's own figures for its table, which need a selection.
const folder = dirname(resolve(script)), load = name => runInThisContext(readFileSync(join(folder, name), "utf8"));
globalThis.Page = { data, state: { from: null, filter: "" }, filter: { compile: () => ({ terms: [] }) } };
load("../assets/words.js");
load("figures.js");
Page.opened();

const answers = {
	// The modules of each line that has memory at a moment, as the table names them.
	modules: q => {
		Object.assign(Page.state, { device: q.device, moment: q.moment });
		const { order, list } = Page.grouped("line");
		return order.map(g => list[g]).filter(g => !g.row.before_attach && g.row.file).map(({ row: r, modules, module }) => ({
			line: [r.file, r.line, r.function, r.phase, r.category], modules: [...modules].sort(), text: module }));
	},
	open: () => ({ ms: opened, head: element("head").length, rows: data.rows.length, moments: head.devices.map((d, i) => data.moments(i).length) }),
	head: () => head,
	layers: () => data.layers,
	at: q => data.at(q.device, q.time),
	times: q => Array.from(data.moments(q.device)),
	live: q => {
		const l = data.live(q.device, q.moment);
		const by = Object.fromEntries(q.by.map(key => [key, group(key, { bytes: l.bytes, count: l.count })]));
		return { by, bytes: sum(l.bytes), allocated: l.allocated, reserved: l.reserved, unknown: l.unknown };
	},
	// What came and went between two moments must be the difference between them.
	window: q => {
		const a = data.live(q.device, q.from), b = data.live(q.device, q.to), w = data.window(q.device, q.from, q.to);
		let wrong = 0, kept = 0;
		for (let i = 0; i < data.rows.length; i++) {
			wrong += w.allocated[i] - w.freed[i] !== b.bytes[i] - a.bytes[i];
			wrong += w.allocs[i] - w.frees[i] !== b.count[i] - a.count[i];
			kept += w.kept[i] > b.bytes[i];
		}
		return { wrong, kept, allocated: sum(w.allocated), allocs: sum(w.allocs), freed: sum(w.freed), frees: sum(w.frees) };
	},
	// The live set again, from the blocks alone.
	blocks: q => {
		const b = data.blocks(q.device), l = data.live(q.device, q.moment), bytes = new Float64Array(data.rows.length);
		for (let i = 0; i < b.n; i++)
			if (b.born[i] <= q.moment && b.gone[i] > q.moment)
				bytes[b.row[i]] += b.size[i];
		return { wrong: bytes.filter((v, i) => v !== l.bytes[i]).length, addresses: b.address !== null };
	},
	segments: q => {
		const b = data.blocks(q.device), all = data.segments(q.device, q.moment).map(s => ({ ...s, bytes: 0, blocks: 0 }));
		for (let i = 0; i < b.n && b.address; i++) {
			if (b.born[i] > q.moment || b.gone[i] <= q.moment)
				continue;
			const s = all.find(x => x.address <= b.address[i] && b.address[i] < x.address + x.size);
			if (s) {
				s.bytes += b.size[i];
				s.blocks++;
			}
		}
		return all;
	},
	series: q => Object.fromEntries(Object.entries(data.series(q.device, q.from, q.to, q.n)).map(([k, a]) => [k, Array.from(a)])),
	stacked: q => {
		const s = data.stackedSeries(q.device, q.from, q.to, q.n, q.key);
		return { names: s.names, bytes: s.bytes.map(a => Array.from(a)) };
	},
	// Milliseconds of queries as a brush makes them.
	speed: q => {
		const n = data.moments(q.device).length, times = {};
		const measure = (name, times_, f) => {
			const from = performance.now();
			for (let i = 0; i < times_; i++)
				f(i);
			times[name] = (performance.now() - from) / times_;
		};
		measure("first_end", 1, () => data.live(q.device, n - 1));
		measure("near", 200, i => data.live(q.device, n - 1 - i * 50));
		measure("far", 200, i => data.live(q.device, (i * 7919 * 131) % n));
		measure("window", 20, i => data.window(q.device, i, n - 1 - i));
		measure("series", 20, () => data.series(q.device, 0, head.duration, 1200));
		measure("stacked", 20, () => data.stackedSeries(q.device, 0, head.duration, 600, "category"));
		return times;
	},
};

const questions = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(questions.map(q => answers[q.ask](q))));
