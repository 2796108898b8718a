// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens a page of export html in headless Chromium, or with BROWSER=firefox in Firefox, and uses it as a person would:
//   node check_page.mjs PAGE.html ANSWERS.json [REFERENCE FOLDER] [FOLDER FOR PICTURES]
// ANSWERS.json gets what the page said at the moments chosen here, for the caller to ask the report the same. With
// references, pictures are compared with them, and written to the second folder where they differ, or where UPDATE is
// set, into the first. $CHROMIUM and $FIREFOX name the browser. Exit 77: there is none.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import assert from "node:assert/strict";
import { close, contrast, distance, launch, nearest, open, quit, settled, small } from "./page.mjs";

const [file, answersFile, references, shots] = process.argv.slice(2);
if (!answersFile) {
	console.error("usage: node check_page.mjs PAGE.html ANSWERS.json [REFERENCES [PICTURES]]");
	process.exit(64);
}
const browser = await launch();
const answers = [];

const text = (page, id) => page.textContent("#" + id);
const state = page => page.evaluate(() => ({ ...Page.state }));
const choose = async (page, id, value) => { await page.selectOption("#" + id, value); await settled(page); };
const key = async (page, ...keys) => {
	for (const k of keys)
		await page.keyboard.press(k);
	await settled(page);
};

async function plotBox(page) {
	const r = await page.locator("#plot .u-over").boundingBox();
	return { at: f => [r.x + r.width * f, r.y + r.height * 0.4] };
}

// The table as it is copied: [{bytes, count, category, ...}]
async function tsv(page) {
	const lines = await page.evaluate(() => Page.table.tsv().slice(0, -1).split("\n").map(l => l.split("\t")));
	return lines.slice(1).map(l => Object.fromEntries(l.map((v, i) => [lines[0][i], v])));
}

const sum = rows => rows.reduce((a, r) => a + Number(r.bytes), 0);

// What the page says now, by category, module and line; the table, the flame graph and the modules agree.
async function answer(page, what) {
	const s = await state(page), by = {};
	for (const k of ["category", "module", "line"]) {
		await choose(page, "by", k);
		by[k] = await tsv(page);
		assert.equal(sum(by[k]), sum(by.category), `${what}: by ${k} is as much as by category`);
	}
	if (s.from === null || s.measure !== "grew") {
		await key(page, "1");
		assert.equal(await page.evaluate(() => Page.views.flame.sum()), sum(by.line), `${what}: the flame graph is as much as the table`);
	}
	await key(page, "5");
	const roots = await page.evaluate(() => Page.views.modules.rows().filter(n => n.parent < 0).reduce((a, n) => a + n.all, 0));
	assert.equal(roots, sum(by.line), `${what}: the modules are as much as the table`);
	await key(page, "1");
	const device = await page.evaluate(() => Page.device().name);
	answers.push({ what, device, time: s.time.toFixed(9), from: s.from === null ? null : await page.evaluate(() => Page.timeOf(Page.state.from).toFixed(9)), measure: s.measure, by });
	return by;
}

async function checkMoments(page) {
	assert.match(await text(page, "choice-text"), await page.isVisible("#go-oom") ? /^Out of memory at / : /^Peak /, "the first moment");
	await page.click("#go-peak");
	await settled(page);
	assert.match(await text(page, "choice-text"), /^Peak /);
	await answer(page, "the peak");
	assert.match(await text(page, "sum"), /^Total [0-9.]+ .iB$/);
	const plot = await plotBox(page);
	for (const f of [0.15, 0.5, 0.83]) {
		await page.mouse.click(...plot.at(f));
		await settled(page);
		assert.equal((await state(page)).from, null);
		await answer(page, `a click at ${f}`);
	}
	await page.click("#go-end");
	await settled(page);
	await answer(page, "the end");
	if (await page.isVisible("#go-oom")) {
		await page.click("#go-oom");
		await settled(page);
		await answer(page, "out of memory");
	}
}

async function brush(page, a, b) {
	const plot = await plotBox(page);
	await page.mouse.move(...plot.at(a));
	await page.mouse.down();
	await page.mouse.move(...plot.at((a + b) / 2), { steps: 3 });
	await page.mouse.move(...plot.at(b), { steps: 3 });
	await page.mouse.up();
	await settled(page);
}

// The other processes on a device are named at an out-of-memory error and at a bad end, and nowhere else.
async function checkNeighbours(page) {
	if (!await page.isVisible("#go-oom"))
		return;
	const shown = () => page.evaluate(() => document.getElementById("neighbours").hidden ? null : document.getElementById("neighbours").textContent);
	const device = await page.evaluate(() => {
		const d = Page.device(), p = { pid: 42, bytes: 40 * 2 ** 30, uid: 0, user: "root", command: "<b>serve</b>.py", container: "web" };
		Page.kept = { d, ooms: d.out_of_memory.map(o => o.other_processes), end: d.other_processes_at_end };
		d.out_of_memory.forEach(o => { o.other_processes = { read: o.time, count: 7, largest: [p, { ...p, pid: 43, bytes: null, user: null, command: null, container: null }, p, p, p] }; });
		d.other_processes_at_end = { read: 0, count: 1, largest: [p] };
		return d.name;
	});
	const one = "<b>serve</b>.py (PID 42, user root, container web) 40.00 GiB";
	await page.click("#go-peak");
	await settled(page);
	assert.equal(await shown(), null, "at the peak");
	await page.click("#go-oom");
	await settled(page);
	const atTheError = `Other processes on this device: ${one} · no such process (PID 43) · ${one} · ${one} · + 3 more`;
	assert.equal(await shown(), atTheError, device);
	const box = await page.locator("#neighbours").boundingBox(), whole = await page.locator("#choice").boundingBox();
	assert.ok(box.height > 0 && box.x >= whole.x && box.x + box.width <= whole.x + whole.width + 1, "it is in the panel of the moment");
	if (shots) {
		mkdirSync(shots, { recursive: true });
		await page.screenshot({ path: join(shots, "neighbours.png") });
	}
	await page.click("#go-end");
	await settled(page);
	const endsWithIt = (await page.textContent("#choice-text")).startsWith("Out of memory");
	assert.equal(await shown(), endsWithIt ? atTheError : `Other processes on this device at the end: ${one}`);
	await page.evaluate(() => {
		Page.kept.d.out_of_memory.forEach((o, i) => { o.other_processes = Page.kept.ooms[i]; });
		Page.kept.d.other_processes_at_end = Page.kept.end;
	});
	await page.click("#go-peak"); // the page says nothing new of a moment that it shows already
	await page.click("#go-oom");
	await settled(page);
	assert.equal(await shown(), null, "a recording without them");
}

// A click on a finding leads to what it is about, and on "+ 2 more" to the others.
async function checkFindings(page) {
	if (await page.isVisible("#go-oom")) {
		await page.click("#go-peak");
		await page.click("#findings .worst button");
		await settled(page);
		assert.match(await text(page, "choice-text"), /^Out of memory at /);
	}
	await page.evaluate(() => {
		const few = Page.head.diagnosis, f = { code: "leak", fault: true, title: "Leak on cuda:0", text: "", device: "cuda:0", bytes_per_step: 1, where: "a b/train.py:57 (f)" };
		Page.head.diagnosis = { findings: [f, { ...f, bytes_per_step: undefined, bytes_per_second: 1 }, f, { ...f, bytes_per_step: undefined }, { ...f, fault: false, bytes_per_step: undefined, where: null }] };
		Page.findings.show();
		Page.head.diagnosis = few;
	});
	const said = () => page.locator("#findings li").allTextContents();
	assert.deepEqual((await said()).slice(3), ["+ 2 more findings"]);
	await page.click("#findings .more button");
	assert.deepEqual((await said()).slice(3), ["Leak on cuda:0: ", "Could be saved at the peak:", "Leak on cuda:0: "]);
	assert.equal(await page.evaluate(() => document.activeElement.title), "Filter to this line", "the first one that is new has the focus");
	await page.click("#findings li:nth-child(4) button");
	await settled(page);
	assert.equal(await page.inputValue("#filter"), "line:train.py:57");
	await page.evaluate(() => Page.find([]));
	for (const nth of [1, 2]) {
		await key(page, "1");
		await page.click(`#findings li:nth-child(${nth}) button`);
		await settled(page);
		assert.equal((await state(page)).tab, "growth");
	}
	assert.equal(await page.locator("#findings li:last-child button").count(), 0, "a finding without a place leads nowhere");
	await key(page, "1");
	await page.evaluate(() => Page.findings.show());
	await page.click("#go-peak");
	await settled(page);
}

async function checkWindow(page) {
	assert.equal(await page.isVisible("#measures"), false);
	await brush(page, 0.7, 0.3); // backwards is the same
	const s = await state(page);
	assert.ok(s.from !== null && s.from < s.moment, "a drag chooses a window");
	assert.match(await text(page, "choice-text"), /^Window .* events/);
	const measures = page.locator("#measures button");
	assert.equal(await measures.count(), 4);
	const of = {};
	for (let i = 0; i < 4; i++) {
		await measures.nth(i).click();
		await settled(page);
		const m = (await state(page)).measure;
		of[m] = sum(await answer(page, "window: " + m).then(by => by.line));
	}
	const kept = await page.evaluate(() => {
		const b = Page.data.blocks(Page.state.device), { from, moment } = Page.state;
		let bytes = 0, blocks = 0;
		for (let i = 0; i < b.n; i++)
			if (b.born[i] > from && b.born[i] <= moment && b.gone[i] > moment) {
				bytes += b.size[i];
				blocks++;
			}
		return { bytes, blocks };
	});
	await page.click("#measures button:has-text('Kept')");
	await settled(page);
	const said = await tsv(page);
	assert.deepEqual({ bytes: sum(said), blocks: said.reduce((a, r) => a + Number(r.count), 0) }, kept, "kept is what came in the window and is alive at its end");
	assert.ok(of.allocated >= of.kept && of.kept >= of.grew, JSON.stringify(of));
	await page.keyboard.press("Escape");
	await settled(page);
	assert.equal((await state(page)).from, null, "Escape leaves the window");
}

async function checkFilter(page) {
	await page.click("#go-peak");
	await choose(page, "by", "category");
	const all = await tsv(page), most = all.find(r => r.category !== "unknown") ?? all[0];
	const filter = async t => { await page.fill("#filter", t); await settled(page, 80); return tsv(page); };
	let rows = await filter("category:" + most.category);
	assert.deepEqual(rows.map(r => [r.bytes, r.category]), [[most.bytes, most.category]]);
	assert.equal(await page.evaluate(() => Page.views.flame.sum()), Number(most.bytes), "the flame graph has the filter, too");
	assert.match(await text(page, "sum"), /^Filter: .* of .*Percentages are of the filtered memory\.$/);
	assert.match(await text(page, "filter-says"), /%$/);
	assert.equal(sum(await filter("-category:" + most.category)) + Number(most.bytes), sum(all));
	assert.equal((await filter("no row has these words")).length, 0);
	assert.equal(await text(page, "filter-says"), "nothing matches");
	for (const t of ["rol:input", "-rol:input"]) {
		await filter(t);
		assert.equal(await text(page, "filter-says"), "unknown field “rol”", t);
	}
	// What report makes of the same expressions is for the caller to find out.
	const s = await state(page), device = await page.evaluate(() => Page.device().name);
	for (const expression of ["forward", "category:activation module:blocks.*.mlp", "line:model.py -line:model.py:57 phase:forward|backward", "!source:frame",
		'module:""', "class:linear|layernorm", "func:forward category:temporary|unknown", "blocks.1 -blocks.11"]) {
		rows = await filter(expression);
		answers.push({ what: "filter", filter: expression, device, time: s.time.toFixed(9), bytes: sum(rows) });
	}
	await filter("");
	await choose(page, "by", "module");
	const module = (await tsv(page)).find(r => /^[^(].*\./.test(r.module));
	if (module) {
		const name = module.module.split(" ")[0];
		rows = await filter("module:" + name);
		assert.ok(rows.length && rows.every(r => ("." + r.module + ".").includes("." + name)), "module: takes what is inside it, too");
		const part = name.split(".")[0];
		assert.ok(sum(await filter("module:" + part)) >= sum(rows));
		assert.equal((await filter("module:" + part.slice(0, -1) + "zz")).length, 0, "only whole parts");
	}
	await filter("");
	await choose(page, "by", "line");
	// A click on a row filters to it; another one takes it back.
	const first = page.locator("#table .row").first();
	const size = await first.locator(".c-size").textContent();
	await first.click();
	await settled(page);
	assert.equal(await page.locator("#table .row").first().locator(".c-size").textContent(), size);
	assert.ok((await page.inputValue("#filter")).length > 0);
	await page.evaluate(() => Page.find([]));
	await settled(page);
	assert.equal(await page.inputValue("#filter"), "");
	const reads = browser.kind !== "firefox"; // Firefox asks the person before a page reads the clipboard
	if (reads)
		await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
	await page.click("#copy");
	await page.waitForFunction(() => document.getElementById("filter-says").textContent.includes("copied"));
	if (reads)
		assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.evaluate(() => Page.table.tsv()));
}

async function checkFlame(page) {
	const drawn = () => page.evaluate(() => Page.views.flame.drawn().map(o => ({ name: o.name, x: o.x, y: o.y, w: o.w, value: o.value, more: !!o.more })));
	const all = await drawn(), width = all[0].w;
	const rows = new Map();
	for (const f of all)
		rows.set(f.y, [...(rows.get(f.y) ?? []), f]);
	for (const row of rows.values()) {
		row.sort((a, b) => a.x - b.x);
		row.forEach((f, i) => assert.ok(f.x >= -0.01 && f.x + f.w <= width + 0.5 && (!i || f.x + 0.01 >= row[i - 1].x + row[i - 1].w), "frames of a row do not overlap"));
	}
	const target = all.findLast(f => !f.more && f.w > 20 && f.w < width * 0.7);
	if (target) {
		const canvas = page.locator("canvas.flame"); // deep stacks reach below the window: these scroll there
		await canvas.click({ position: { x: target.x + target.w / 2, y: target.y + 8 } });
		await settled(page);
		const zoomed = (await drawn()).find(f => f.name === target.name && Math.abs(f.w - width) < 1);
		assert.ok(zoomed, `${target.name} takes the whole width`);
		await canvas.hover({ position: { x: 30, y: 8 } });
		assert.ok(await page.isVisible("#tip"));
		await page.mouse.move(2, 2);
		await page.click("text=Reset zoom");
		await settled(page);
		assert.equal((await drawn()).length, all.length);
	}
	const word = all.findLast(f => !f.more && f.w > 10 && f.name.length > 3).name.slice(0, 12);
	await page.fill("#flame-search", word.toUpperCase());
	assert.match(await page.textContent("#view .says"), /% matched · /);
	await page.fill("#flame-search", "no frame is called this");
	assert.equal(await page.textContent("#view .says"), "no match");
	await page.fill("#flame-search", "");
	for (const option of ["Hide torch internals", "Allocating line first", "Root on top", "Blocks"]) {
		const before = await page.evaluate(() => Page.views.flame.sum());
		await page.click(`#view label:has-text("${option}")`);
		await settled(page);
		if (option !== "Blocks")
			assert.equal(await page.evaluate(() => Page.views.flame.sum()), before, `${option} changes no sum`);
		await page.click(`#view label:has-text("${option}")`);
	}
	await page.focus("canvas.flame");
	await key(page, "Home", "ArrowDown");
	const said = await page.textContent("#view .says");
	await key(page, "ArrowDown");
	assert.notEqual(await page.textContent("#view .says"), said, "arrow keys move the mark");
	await key(page, "Enter");
	assert.equal(await page.isDisabled("text=Reset zoom"), false);
	await key(page, "Escape", "Escape", "Escape", "Escape");
	assert.equal(await page.isDisabled("text=Reset zoom"), true);
	await twin(page, "#view");
}

// A picture's twin in words.
async function twin(page, where) {
	await page.click(`${where} details.twin summary`);
	await page.waitForSelector(`${where} details.twin td`);
	await page.click(`${where} details.twin summary`);
}

async function checkOtherViews(page) {
	await key(page, "2");
	assert.match(await page.textContent("#view"), /Growth not known in \d+ steps?: record 100|[Nn]o growth from step to step in \d+ steps \(not sure: record 100\)/);
	await key(page, "3");
	const lanes = await page.evaluate(() => Page.views.lives.lanes().map(l => [l.name, l.blocks.length, l.bytes]));
	assert.ok(lanes.length > 0, "lifetimes have lanes");
	assert.match(await page.textContent("#view .says"), /block.* allocated.* freed/);
	await twin(page, "#view");
	await page.focus("#view canvas");
	await key(page, "ArrowDown");
	if (await page.isVisible("#tab-segments")) {
		await key(page, "4");
		const [size, reserved, used, allocated] = await page.evaluate(() => {
			const all = Page.views.segments.segments(), f = Page.data.figures(Page.state.device, Page.state.moment);
			return [all.reduce((a, s) => a + s.size, 0), f.reserved, all.reduce((a, s) => a + s.used, 0), f.allocated];
		});
		if (size) {
			assert.ok(size <= reserved && used <= allocated, `segments: ${size} of ${reserved}, ${used} of ${allocated}`);
			await twin(page, "#view");
		}
	}
	await key(page, "5");
	assert.ok(await page.locator("#modules .row").count() > 0);
	await key(page, "1");
	await twin(page, "#time");
}

async function checkKeys(page) {
	await page.focus("#plot");
	await key(page, "p");
	const peak = (await state(page)).moment;
	await key(page, "ArrowLeft", "ArrowLeft");
	assert.equal((await state(page)).moment, peak - 2, "an arrow is an event");
	await key(page, "ArrowRight");
	assert.equal((await state(page)).moment, peak - 1);
	await key(page, "e");
	assert.equal((await state(page)).moment, await page.evaluate(() => Page.moments().length - 1));
	const view = async () => { const v = (await state(page)).view; return v[1] - v[0]; };
	await key(page, "0");
	const whole = await view();
	await key(page, "+");
	assert.ok(Math.abs(await view() - whole / 2) < whole * 0.01, "+ zooms");
	await key(page, "-");
	await page.hover("#plot .u-over");
	await page.mouse.wheel(0, -120);
	await settled(page);
	assert.ok(await view() < whole, "the wheel zooms");
	await key(page, "0");
	if (await page.isVisible("#go-step")) {
		await key(page, "e");
		const end = (await state(page)).moment;
		await key(page, "Shift+ArrowLeft");
		const before = (await state(page)).moment;
		assert.ok(before < end, "Shift and an arrow is a step");
		await key(page, "Shift+ArrowLeft");
		assert.ok((await state(page)).moment < before, "and the next one is a step more");
		await key(page, "p", "s");
		assert.notEqual((await state(page)).from, null, "s takes the step as a window");
		const measure = (await state(page)).measure;
		await key(page, "m");
		assert.notEqual((await state(page)).measure, measure, "m changes what is shown of it");
		await key(page, "m", "m", "m", "Escape");
		assert.equal((await state(page)).from, null);
	}
	await key(page, "p", "Alt+ArrowRight", "Alt+ArrowRight");
	assert.equal((await state(page)).from, peak, "Alt and an arrow makes a window");
	await key(page, "Escape", "b");
	assert.equal((await state(page)).by, "category");
	await key(page, "b", "b", "b");
	await key(page, "?");
	assert.ok(await page.isVisible("#keys"));
	await page.keyboard.press("Escape");
	assert.ok(!await page.isVisible("#keys"));
	await key(page, "/");
	assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
	await page.keyboard.type("p/e");
	assert.equal(await page.inputValue("#filter"), "p/e", "keys are text in the filter");
	await page.fill("#filter", "");
	await page.focus("#table");
	await key(page, "ArrowDown", "ArrowDown");
	const [active, marked] = await page.evaluate(() => [document.getElementById("table").getAttribute("aria-activedescendant"), document.querySelector("#table .row.at")?.id]);
	assert.ok(active && active === marked, "the table says where its mark is");
	await key(page, "w");
	assert.equal(await page.isVisible("#left"), false);
	await key(page, "w");
	// Every control can be reached, and is seen to have the focus.
	await page.focus("#device, #theme");
	for (let i = 0; i < 25; i++) {
		await page.keyboard.press("Tab");
		const [id, outline] = await page.evaluate(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.id || e.tagName, e === document.body ? "body" : s.outlineStyle + s.outlineWidth]; });
		assert.ok(outline === "body" || /^solid[12]/.test(outline), `${id} shows its focus: ${outline}`);
	}
}

async function checkDevices(page) {
	const n = await page.locator("#device option").count();
	assert.equal(await page.isVisible("#device"), n > 1);
	for (let i = 1; i < n; i++) {
		await choose(page, "device", String(i));
		await page.click("#go-peak");
		await settled(page);
		await answer(page, "another device");
	}
	if (n > 1)
		await choose(page, "device", "0");
}

// The address keeps what is chosen.
async function checkAddress(page) {
	await page.click("#go-peak");
	await key(page, "ArrowLeft", "ArrowLeft", "ArrowLeft");
	await choose(page, "by", "module");
	await page.waitForTimeout(400);
	const before = await state(page), hash = await page.evaluate(() => location.hash);
	const again = await open(browser, file, {}, hash);
	const after = await state(again);
	assert.deepEqual([after.moment, after.by, after.device], [before.moment, before.by, before.device]);
	await close(again);
	await choose(page, "by", "line");
}

const colours = (page, prefix, names) => page.evaluate(([p, ns]) => Object.fromEntries(ns.map(n => [n, Page.colour(p + n)])), [prefix, names]);

async function checkColours(page) {
	const panel = await page.evaluate(() => Page.colour("panel"));
	for (const [prefix, names, least] of [["c-", ["parameter", "buffer", "gradient", "optimizer_state", "activation", "input", "temporary", "unknown"], 17],
		["n-", [..."01234567"], 17], ["p-", ["forward", "backward", "optimizer", "data", "other"], 14]]) {
		const all = await colours(page, prefix, names), [d, a, b, vision] = nearest(all);
		assert.ok(d >= least, `${prefix}${a} and ${b} are ${d.toFixed(1)} apart with ${vision} vision`);
		for (const [name, c] of Object.entries(all))
			assert.ok(contrast(c, panel) >= 1.5, `${prefix}${name} stands out of the panel`);
	}
	for (const name of ["ink", "soft", "warn", "good", "accent", "mark"])
		assert.ok(contrast(await page.evaluate(n => Page.colour(n), name), panel) >= 4.5, `${name} can be read`);
	const on = await page.evaluate(() => [Page.colour("on-accent"), Page.colour("accent")]);
	assert.ok(contrast(...on) >= 4.5);
	for (const kind of ["user", "module", "torch", "library", "stdlib", "note", "root"])
		assert.ok(contrast(await page.evaluate(k => Page.colour("f-" + k), kind), await page.evaluate(() => Page.colour("f-ink"))) >= 4.5, `text on ${kind} frames`);
}

async function compare(page, name) {
	if (!references)
		return;
	await page.mouse.move(1, 1);
	await page.evaluate(() => document.activeElement?.blur());
	await settled(page);
	const { png } = await small(browser, await page.screenshot({ fullPage: name.includes("380") }));
	const reference = join(references, name + ".png");
	if (process.env.UPDATE) {
		writeFileSync(reference, Buffer.from(png, "base64"));
		return;
	}
	assert.ok(existsSync(reference), `${reference} is not there: UPDATE=1 makes it`);
	const [mean, far] = await distance(browser, png, reference);
	if (mean > 5 || far > 0.04) {
		if (shots) {
			mkdirSync(shots, { recursive: true });
			writeFileSync(join(shots, name + ".png"), Buffer.from(png, "base64"));
		}
		assert.fail(`${name} is not what ${basename(reference)} shows: ${mean.toFixed(2)} of 255 on average, ${(100 * far).toFixed(1)} % of the points${shots ? "; see " + shots : ""}`);
	}
}

let page = await open(browser, file);
await compare(page, "1280-light");
await checkMoments(page);
await checkNeighbours(page);
await checkFindings(page);
await checkWindow(page);
await checkFilter(page);
await page.click("#go-peak");
await settled(page);
await checkFlame(page);
await checkOtherViews(page);
await checkKeys(page);
await checkDevices(page);
await checkAddress(page);
await checkColours(page);
await close(page);

page = await open(browser, file, { colorScheme: "dark" });
assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark", "as the system has it");
await checkColours(page);
await key(page, "3");
await compare(page, "1280-dark-lifetimes");
await key(page, "t");
assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light", "t changes it");
await key(page, "t", "4");
await compare(page, "1280-dark-segments");
await close(page);

for (const colorScheme of ["light", "dark"]) {
	page = await open(browser, file, { viewport: { width: 380, height: 800 }, colorScheme, hasTouch: true });
	for (const tab of await page.evaluate(() => Page.tabsHere)) {
		await page.evaluate(t => Page.set({ tab: t }), tab);
		await settled(page);
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${tab} fits 380 px`);
	}
	await page.evaluate(() => Page.set({ tab: "modules" }));
	await settled(page);
	await compare(page, "380-" + colorScheme);
	await close(page);
}

// Without scripts the page says why it is empty, and still asks for nothing. Over BiDi, Firefox keeps them on.
if (browser.kind !== "firefox") {
	const context = await browser.newContext({ javaScriptEnabled: false, offline: true });
	page = await context.newPage();
	await page.goto("file://" + file);
	assert.ok(await page.isVisible("noscript p, body > p.warn"));
	await context.close();
}
await quit(browser);
writeFileSync(answersFile, JSON.stringify(answers));
console.log(`${file}: the page works`);
