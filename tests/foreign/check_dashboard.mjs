// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Uses the dashboard of a live server in headless Chromium, or with BROWSER=firefox in Firefox, as a person would:
//   node check_dashboard.mjs WHAT URL FOLDER [TOKEN]
// WHAT: use (a server with a process of the target "job", the command "once" and two recordings), docs, login (a server that wants
// TOKEN), upload (a server without recordings; TOKEN is the path of a snapshot, upload.pickle), ranks (a server with 40 recordings of tests/tools/make_fleet.c in a folder ranks-few, and 4 in ranks-other; TOKEN is a file with a report of 4,096), others (TOKEN is what it says of the GPU). FOLDER gets what is downloaded, and pictures to be looked at. Exit 77: there is no browser.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";
import Ajv from "ajv";
import { context as newContext, launch, quit } from "./page.mjs";

const [what, url, folder, token] = process.argv.slice(2);
if (!folder) {
	console.error("usage: node check_dashboard.mjs use|docs|login|ranks|upload|others URL FOLDER [TOKEN]");
	process.exit(64);
}
const browser = await launch();

// Whatever is said on the console, thrown, or asked of anybody else is a problem.
async function open(path = "", options = {}) {
	const context = await newContext(browser, { viewport: { width: 1280, height: 900 }, colorScheme: "light", acceptDownloads: true, ...options });
	context.setDefaultTimeout(60000);
	const problems = [], page = await context.newPage();
	const watch = p => {
		p.on("console", m => problems.push(`console ${m.type()}: ${m.text()}`));
		p.on("pageerror", e => problems.push(`error: ${e.stack}`));
		p.on("request", r => { if (!r.url().startsWith(url) && !/^(data|blob):/.test(r.url())) problems.push(`request: ${r.url()}`); });
		p.on("dialog", d => { problems.push(`dialog: ${d.message()}`); d.dismiss(); });
	};
	context.on("page", watch);
	watch(page);
	page.problems = problems;
	await page.goto(url + "/" + path);
	return page;
}

async function close(page) {
	assert.deepEqual(page.problems, []);
	await page.context().close();
}

const ready = page => page.waitForFunction(() => document.body.dataset.state === "ready");
const until = (page, fn, arg) => page.waitForFunction(fn, arg);
const text = (page, selector) => page.textContent(selector);
const api = async (page, path) => {
	const r = await page.request.get(`${url}/api/${path}`);
	assert.equal(r.status(), 200, `${path}: ${r.status()}`);
	return r.json();
};
const picture = (page, name, options = {}) => page.screenshot({ path: join(folder, name + ".png"), ...options });
const fits = async (page, name) => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: nothing is wider than the screen`);

// ---- the first view

async function checkProcess(page) {
	await until(page, () => document.querySelector("#job-list .row:not([hidden])") && document.querySelector("#devices .tile"));
	const p = (await api(page, "targets")).processes[0], size = p.devices[0].reserved;
	assert.equal(await page.getAttribute("#job-name", "title"), p.name, "the name is text, whatever is in it");
	assert.match(await text(page, "#job-name"), /^python served\.py --train <img/);
	assert.match(p.name, /<img/, "there is something in it");
	assert.equal(await page.locator("img").count(), 0, "no element is made of a name");
	// Reserved does not change from step to step.
	await until(page, size => document.querySelector("#devices .t-reserved b")?.textContent === Words.bytes(size), size);
	await until(page, () => document.querySelector("#job-list .j-spark .curve"));
	assert.match(await text(page, "#chart-span"), /^([0-9.]+ s|[0-9]+m [0-9]+s) of figures so far$/, "the chart says how far back it goes");
	assert.match(await text(page, "#trust"), /connected/);
	assert.doesNotMatch(await text(page, "#trust"), /not connected|cannot capture/);
	const end = () => page.evaluate(() => Page.chart.plot.data[0].at(-1));
	const first = await end(), points = await page.evaluate(() => Page.chart.plot.data[0].length);
	await until(page, first => Page.chart.plot.data[0].at(-1) > first + 1, first);
	const past = await api(page, `targets/${p.pid}/history`);
	assert.ok(past.samples.length >= points, "the chart begins with what the server remembers");
	assert.ok(await page.evaluate(t => Page.chart.plot.data[0][0] <= t + 0.001, past.samples[0].time), "from its beginning on");
}

const traces = page => page.evaluate(() => [...Page.model.traces.values()]);

// Starts one as it stands in the form; returns its trace.
async function capture(page, end) {
	const before = (await traces(page)).length;
	await page.click("#go");
	await until(page, n => Page.model.traces.size > n, before);
	const id = (await traces(page)).at(-1).trace_id;
	await until(page, () => document.querySelector("#running li .progress"));
	await end?.(id);
	await until(page, id => ["done", "failed"].includes(Page.model.traces.get(id)?.state), id);
	const t = (await traces(page)).find(t => t.trace_id === id);
	assert.equal(t.state, "done", t.error ?? "");
	assert.equal(t.lost, 0);
	await until(page, () => !document.querySelector("#running li"));
	return t;
}

async function checkCapture(page) {
	await page.keyboard.press("c");
	assert.equal(await page.evaluate(() => document.activeElement.id), "length");
	await page.fill("#events", "0");
	await page.evaluate(() => document.getElementById("capture").noValidate = true);
	await page.click("#go");
	await until(page, () => /max_events/.test(document.getElementById("capture-says").textContent));
	assert.equal(await page.getAttribute("#events", "aria-invalid"), "true", "the field to blame");
	page.problems.splice(0, page.problems.length, ...page.problems.filter(p => !/status of 422/.test(p)));
	await page.fill("#events", "100000");
	await page.fill("#length", "1");
	const at = await page.evaluate(() => Page.chart.plot.data[0].at(-1));
	const timed = await capture(page);
	assert.ok(timed.events > 0 && timed.seconds >= 0.9, `${timed.events} events in ${timed.seconds} s`);
	await until(page, at => Page.chart.plot.data[0].at(-1) > at, at);
	assert.match(await text(page, "#say"), new RegExp(`${timed.events.toLocaleString("en-US")} events, 0 lost`));
	await page.fill("#length", "600");
	const stopped = await capture(page, async () => {
		await until(page, () => /[1-9][0-9,]* events/.test(document.querySelector("#running .says").textContent));
		await page.click("#running button");
	});
	assert.ok(stopped.seconds < 60, `it was stopped after ${stopped.seconds} s`);
	return [timed, stopped];
}

// With the box for host memory: the device `host` is among the others, and its rows are resident memory.
async function checkHost(page) {
	await page.fill("#length", "1");
	await page.check("#with-host");
	const t = await capture(page);
	await page.uncheck("#with-host");
	assert.equal(t.host, true);
	const doc = await api(page, `trace/${t.trace_id}?device=host&at=end&top=0`), heap = doc.rows.find(r => r.file === "[heap]");
	assert.equal(doc.rows.reduce((a, r) => a + r.bytes, 0), doc.capture.host_rss, "rows add up to RSS");
	await page.evaluate(id => { location.hash = `#/trace/${id}?at=end`; }, t.trace_id);
	await until(page, () => document.body.dataset.view === "trace");
	await settled(page);
	assert.equal(await page.evaluate(() => Page.report.doc.device), doc.devices[0].device, "a report begins with a device of PyTorch");
	await page.click("#trace-devices .tile:has-text('host')");
	await until(page, () => Page.report.doc.device === "host");
	await settled(page);
	assert.ok((await text(page, "#table-says")).startsWith(`Total ${await page.evaluate(n => Words.bytes(n), doc.allocated)} at `), "the total");
	const row = page.locator("#table .row:not([hidden]):has-text('[heap] (before attach)')").first();
	assert.equal(await row.locator(".g-size b").textContent(), await page.evaluate(n => Words.bytes(n), heap.bytes));
	assert.equal(await row.locator(".g-place").getAttribute("title"), "[heap]", "a mapping has no line");
	assert.equal(await page.locator("#table .g-category").count(), 0, "host memory has no roles");
	await row.click();
	await until(page, () => !document.getElementById("detail").hidden);
	assert.match(await text(page, "#detail"), /^Location\[heap\]  \(before attach\)/);
	await picture(page, "host");
	await page.evaluate(() => { location.hash = "#/"; });
	await until(page, () => document.body.dataset.view === "home");
}

async function checkCommand(page) {
	const i = await page.evaluate(() => Page.jobs.rows().findIndex(r => r.target?.name === "once"));
	await page.click(`#job-list .row[data-i="${i}"]`);
	await until(page, () => document.getElementById("capture").classList.contains("command"));
	assert.equal(await page.inputValue("#unit"), "", "a command runs to its end");
	await page.fill("#shape", "2, 3, 64, 64");
	await page.fill("#batch", "2");
	const before = (await traces(page)).length;
	await page.click("#go");
	await until(page, n => Page.model.traces.size > n, before);
	await until(page, () => document.querySelector("#running li .progress"));
	await page.click('#job-list .row[data-i="0"]');
	return (await traces(page)).at(-1).trace_id;
}

// It takes its time to start, and the rest of the page does not wait for it.
async function commandDone(page, id) {
	await until(page, id => ["done", "failed"].includes(Page.model.traces.get(id)?.state), id);
	const t = (await traces(page)).find(t => t.trace_id === id);
	assert.equal(t.state, "done", t.error ?? "");
	assert.deepEqual(t.input_shape, [2, 3, 64, 64]);
	assert.equal(t.batch_size, 2);
	assert.ok(t.events > 0);
	return t;
}

// ---- the report

async function settled(page) {
	await until(page, () => !document.getElementById("table").hasAttribute("aria-busy") && Page.report.doc);
	await page.evaluate(() => Page.settle());
}

async function checkReport(page, trace) {
	const row = await page.evaluate(id => { const rows = [...document.querySelectorAll("#trace-list .row")]; return rows.findIndex(r => r.querySelector(".k-name").title.includes(id)); }, trace.trace_id);
	assert.ok(row >= 0, "the capture is in the list");
	await page.focus("#trace-list");
	await page.keyboard.press("Home");
	const i = await page.evaluate(k => Number(document.querySelectorAll("#trace-list .row")[k].dataset.i), row);
	for (let k = 0; k < i; k++)
		await page.keyboard.press("ArrowDown");
	await page.keyboard.press("Enter");
	await until(page, () => document.body.dataset.view === "trace");
	await settled(page);
	const of = q => api(page, `trace/${trace.trace_id}?${q}`);
	let doc = await of("by=line&at=peak");
	assert.ok(doc.rows.length > 3);
	const words = n => page.evaluate(n => Words.bytes(n), n);
	assert.ok((await text(page, "#table-says")).startsWith(`Total ${await words(doc.allocated)} at `), "the total");
	assert.equal(doc.rows.reduce((a, r) => a + r.bytes, 0), doc.allocated, "the rows of the table add up");
	// What each place has, on the page and in the API's answer.
	const sums = doc => Object.entries(doc.rows.reduce((a, r) => ({ ...a, [`${r.file ?? ""}:${r.line ?? ""} ${r.category}`]: (a[`${r.file ?? ""}:${r.line ?? ""} ${r.category}`] ?? 0) + r.bytes }), {})).sort();
	// Memory from before attach is in rows of what holds it.
	const shown = await page.evaluate(() => ({ rows: Page.report.held(Page.report.doc.rows), said: [...document.querySelectorAll("#table .row:not([hidden]) .g-size b")].map(e => e.textContent), }));
	assert.deepEqual(sums(shown), sums(doc));
	assert.deepEqual(shown.said, await page.evaluate(rows => rows.map(r => Words.bytes(r.bytes)), shown.rows.slice(0, shown.said.length)), "sizes as they are shown");
	for (const [by, at] of [["stack", "end"], ["module", "peak"], ["layer", "end"], ["phase", "peak"], ["category", "end"], ["thread", "peak"], ["segment", "end"], ["line", "end"]]) {
		await page.selectOption("#by", by);
		await page.selectOption("#at", at);
		await until(page, ([by, at]) => Page.report.doc.by === by && Page.report.doc.at === at, [by, at]);
		await settled(page);
		doc = await page.evaluate(() => Page.report.doc);
		assert.ok(await page.locator("#table .row:not([hidden])").count() > 0, `rows by ${by}`);
		assert.match(await text(page, "#table-says"), { segment: /segments/, layer: /include submodules/ }[by] ?? /^Total (?!.*add up)/);
	}
	await page.evaluate(() => document.activeElement.blur());
	await page.keyboard.press("/");
	await until(page, () => document.activeElement.id === "filter");
	await page.keyboard.type("category:parameter");
	await until(page, () => Page.report.doc.filter === "category:parameter");
	await settled(page);
	assert.match(await text(page, "#table-says"), /Filter: .*Percentages are of the filtered memory/);
	assert.deepEqual(await page.evaluate(() => [...new Set([...document.querySelectorAll("#table .row:not([hidden]) .g-category")].map(e => e.textContent))]), ["parameter"]);
	await page.fill("#filter", "no row has these words");
	await until(page, () => Page.report.doc.filter === "no row has these words");
	await settled(page);
	assert.match(await text(page, "#table-says"), /Nothing matches the filter\./);
	await page.keyboard.press("Escape");
	await until(page, () => Page.report.doc.filter === undefined);
	await page.click("#table .row >> nth=0");
	await until(page, () => !document.getElementById("detail").hidden);
	await page.keyboard.press("2");
	await until(page, n => document.querySelector("#table-says").textContent.startsWith(n + " modules"), String(Object.keys(doc.layers).length));
	await page.keyboard.press("3");
	await until(page, () => document.querySelector("#table .g-delta"));
	await page.keyboard.press("4");
	await until(page, () => document.querySelector("#leaks h3"));
	if (doc.capture.steps < 7)
		assert.equal(await page.locator("#leaks button:has-text('Capture 60 steps')").count(), doc.devices.length, "a longer capture is offered");
	assert.match(await text(page, "#leaks"), /growth not known|no growth (in|from)/i);
	await page.keyboard.press("1");
	await page.evaluate(() => { document.getElementById("detail").hidden = true; });
}

// A capture whose memory ran out is shown at that moment, until another one is chosen.
async function checkFindings(page) {
	const oom = (await traces(page)).find(t => t.file === "dashboard-new.mtr").trace_id;
	const at = (moment, device) => until(page, ([m, d]) => Page.report.doc?.at === m && Page.report.doc.device === d, [moment, device]);
	await page.evaluate(id => { location.hash = `#/trace/${id}`; }, oom);
	await at("oom", "cuda:0");
	const first = page.locator("#trace-findings button").first();
	assert.match(await first.textContent(), /^Out of memory on cuda:0: /);
	await page.selectOption("#at", "peak");
	await at("peak", "cuda:0");
	await first.click();
	await at("oom", "cuda:0");
	await page.click("#trace-devices .tile:has-text('cpu')");
	await at("peak", "cpu");
	await page.evaluate(() => { location.hash = "#/"; });
	await until(page, () => document.body.dataset.view === "home");
	await checkFailedDiagnosis(page, (await traces(page)).find(t => t.file === "dashboard-old.mtr").trace_id);
}

// A diagnosis that fails is said once and not started again by clicks.
async function checkFailedDiagnosis(page, id) {
	let asked = 0;
	const before = page.problems.length;
	await page.route("**/diagnose", r => { asked++; r.fulfill({ status: 500, contentType: "application/problem+json", body: JSON.stringify({ detail: "it failed" }) }); });
	await page.evaluate(id => { location.hash = `#/trace/${id}`; }, id);
	await until(page, () => document.getElementById("trace-findings").textContent === "The findings are not known: it failed");
	await page.selectOption("#at", "end");
	await until(page, () => Page.report.doc?.at === "end");
	assert.equal(asked, 1, "how often a failing diagnosis was started");
	assert.match(page.problems.splice(before).join("; "), browser.kind === "firefox" ? /^$/ : /^console error: [^;]* 500 [^;]*$/);
	await page.unroute("**/diagnose");
	await page.evaluate(() => { location.hash = "#/"; });
	await until(page, () => document.body.dataset.view === "home");
}

async function checkFiles(page) {
	await page.selectOption("#formats", "speedscope");
	let [download] = await Promise.all([page.waitForEvent("download"), page.click("#download")]);
	const speedscope = join(folder, "dashboard.speedscope.json");
	await download.saveAs(speedscope);
	const schema = new URL("node_modules/speedscope/dist/release/file-format-schema.json", import.meta.url);
	const validate = new Ajv({ strict: false }).compile(JSON.parse(readFileSync(schema, "utf8")));
	assert.ok(validate(JSON.parse(readFileSync(speedscope, "utf8"))), JSON.stringify(validate.errors));
	await page.selectOption("#formats", "recording");
	[download] = await Promise.all([page.waitForEvent("download"), page.click("#download")]);
	await download.saveAs(join(folder, "dashboard.mtr"));
	const [tab] = await Promise.all([page.context().waitForEvent("page"), page.keyboard.press("g")]);
	await tab.waitForFunction(() => document.body.dataset.state === "ready");
	assert.ok(await tab.evaluate(() => Page.figures().all > 0), "the exported page has the events in it");
	assert.equal(await tab.evaluate(() => { try { return top.localStorage ? "kept" : ""; } catch { return "nobody"; } }), "nobody", "what comes of a recording has no rights here");
	await unfold(tab);
	await tab.close();
}

// Memory from before attach is in rows of its holders, which unfold to their tensors.
async function unfold(tab) {
	const rows = () => tab.evaluate(() => Number(document.getElementById("table").getAttribute("aria-rowcount")) - 1);
	const folded = await rows(), first = tab.locator("#table .row[aria-expanded=false]").first();
	const [size, blocks] = [await first.locator(".c-size").getAttribute("title"), Number((await first.locator(".c-count").textContent()).replaceAll(",", ""))];
	assert.match(await first.locator(".c-phase").textContent(), /before attach/);
	await first.locator(".c-place").click();
	assert.ok(await rows() >= folded + 2, "its tensors are there");
	assert.ok(await tab.locator("#table .row.inner").count() > 0);
	const inner = await tab.evaluate(() => Page.table.rows().filter(r => r.of).map(r => [r.bytes, r.count]));
	assert.deepEqual(inner.reduce((a, r) => [a[0] + r[0], a[1] + r[1]], [0, 0]), [Number(size.replace(/[^0-9]/g, "")), blocks], "they are all of it");
	await tab.keyboard.press("ArrowLeft");
	assert.equal(await rows(), folded, "an arrow folds it again");
}

async function checkCompare(page, given, timed) {
	await page.goBack();
	await until(page, () => document.body.dataset.view === "home");
	await page.focus("#trace-list");
	await page.keyboard.press("End");
	await page.keyboard.press("Space");
	await page.keyboard.press("ArrowUp");
	await page.keyboard.press("ArrowUp");
	await page.keyboard.press("Space");
	await until(page, () => document.getElementById("compare").textContent === "Compare 2");
	await page.click("#compare");
	await until(page, () => document.querySelector(".figures tbody") && Page.compare.doc);
	const ids = await page.evaluate(() => Page.state.route.traces);
	assert.ok(given.includes(ids[0]) && ids[1] === timed.trace_id && ids.length === 2, `the older one first: ${ids}`);
	const doc = await api(page, `trace/diff?old=${ids[0]}&new=${ids[1]}`), all = await api(page, `trace/compare?traces=${ids}`);
	assert.notEqual(doc.change, 0);
	const words = await page.evaluate(([change, peaks]) => [Words.bytes(change), ...peaks.map(Words.bytes)], [doc.change, all.captures.map(c => c.peak_allocated)]);
	assert.ok((await text(page, "#diff-says")).includes(words[0]), "what changed, in all");
	const peaks = await page.locator(".figures tbody tr:first-child td").allTextContents();
	words.slice(1).forEach((w, i) => assert.ok(peaks[i].startsWith(w), `${peaks[i]}: ${w}`));
	const sum = await page.evaluate(() => Page.compare.doc.rows.reduce((a, r) => a + r.change, 0));
	assert.equal(sum, doc.change);
	await page.keyboard.press("x");
	await until(page, change => Page.compare.doc.change === change, -doc.change);
	await page.keyboard.press("Escape");
	await until(page, () => document.body.dataset.view === "home");
}

async function checkKeys(page) {
	await page.evaluate(() => document.activeElement.blur());
	await page.keyboard.press("w");
	await until(page, () => document.querySelector("#now-table .row:not([hidden])"));
	assert.match(await text(page, "#now-says"), /objects read in/);
	assert.equal(await page.inputValue("#now-by"), "holder");
	assert.match(await text(page, "#now-table"), /Held by[^]*blocks\.\*|Held by[^]*\*/);
	await page.keyboard.press("Escape");
	await until(page, () => !document.getElementById("now").open);
	await page.keyboard.press("?");
	assert.ok(await page.isVisible("#keys-list kbd"));
	assert.match(await text(page, "#fields-list"), /module:blocks.*block:>1M/, "the fields of filters");
	await page.keyboard.press("Escape");
	const dark = await page.evaluate(() => Page.isDark());
	await page.evaluate(() => document.activeElement.blur());
	await page.keyboard.press("t");
	assert.equal(await page.evaluate(() => Page.isDark()), !dark);
	await page.keyboard.press("t");
	await page.keyboard.press("/");
	await page.keyboard.type("no such process");
	await until(page, () => !document.getElementById("jobs-none").hidden);
	await page.keyboard.press("Escape");
	await until(page, () => document.getElementById("jobs-none").hidden);
}

async function checkDelete(page, trace) {
	await page.focus("#trace-list");
	await page.keyboard.press("Home");
	const first = await page.evaluate(() => document.querySelector('#trace-list .row[data-i="0"] .k-name').title);
	assert.ok(first.includes(trace.trace_id), "the newest is first");
	await page.keyboard.press("Delete");
	await page.click("#ask button[value=no]");
	await page.keyboard.press("Delete");
	await page.click("#ask-yes");
	await until(page, id => !Page.model.traces.has(id), trace.trace_id);
	assert.ok(!(await api(page, "trace/list")).active_traces.includes(trace.trace_id), "it is gone from the server");
}

// Every view in the dark, and on a small screen.
async function pictures(trace, given) {
	const views = { home: "", trace: `#/trace/${trace.trace_id}`, leaks: `#/trace/${trace.trace_id}?tab=leaks`, compare: `#/compare?traces=${given[0]},${trace.trace_id}` };
	for (const [name, colorScheme, width, height] of [["light", "light", 1280, 900], ["dark", "dark", 1280, 900], ["small", "light", 360, 760]]) {
		const page = await open("", { colorScheme, viewport: { width, height } }); // Firefox cannot change the scheme of a page
		await ready(page);
		await until(page, dark => Page.isDark() === dark, colorScheme === "dark");
		for (const [view, hash] of Object.entries(views)) {
			await page.evaluate(hash => { location.hash = hash || "#/"; }, hash);
			await until(page, view => view === "home" ? document.querySelector("#devices .tile") : view === "compare" ? document.querySelector(".figures") && document.querySelector("#diff-table .row")
				: view === "leaks" ? document.querySelector("#leaks h3") : document.querySelector("#table .row"), view);
			await page.waitForTimeout(150);
			await picture(page, `${name}-${view}`, { fullPage: name === "small" });
			await fits(page, `${name}, ${view}`);
		}
		await close(page);
	}
}

async function use() {
	const page = await open();
	await ready(page);
	await checkProcess(page);
	await until(page, () => Page.model.traces.size === 2);
	const given = await page.evaluate(() => [...Page.model.traces.values()].sort((a, b) => a.begun - b.begun).map(t => t.trace_id));
	assert.equal(await text(page, "#captures-says"), "2 captures (limit 100)");
	for (const t of await traces(page))
		assert.deepEqual([t.begun, t.pid], [Date.UTC(2026, 0, 2, 3, 4, 5) / 1000, 4242], "start and PID are those of the recording");
	const [timed] = await checkCapture(page);
	await checkHost(page);
	await checkFindings(page);
	const command = await checkCommand(page);
	await checkReport(page, timed);
	if (browser.kind !== "firefox") // over BiDi it reports no downloads
		await checkFiles(page);
	await checkCompare(page, given, timed);
	await checkKeys(page);
	await checkDelete(page, await commandDone(page, command));
	await close(page);
	await pictures(timed, given);
}

// ---- the documentation

async function docs() {
	let page = await open("api/docs");
	await ready(page);
	await page.click("#operations-server-getHealth .opblock-summary-control");
	await page.click("#operations-server-getHealth .execute");
	await page.waitForSelector("#operations-server-getHealth .live-responses-table .response-col_status");
	assert.match(await text(page, "#operations-server-getHealth .live-responses-table"), /200[^]*"status": "ok"/);
	const paths = Object.keys((await api(page, "openapi.json")).paths);
	const shown = await page.locator(".opblock-summary-path").evaluateAll(all => all.map(e => e.dataset.path));
	assert.deepEqual([...new Set(shown)].sort(), paths.sort(), "every path is there");
	await picture(page, "docs");
	await close(page);
	page = await open("api/redoc");
	await ready(page);
	await page.waitForSelector("h2:has-text(\"Capture a process\")");
	await page.fill("input[placeholder^=Search]", "export");
	await page.waitForSelector("[data-role='search:results'] li");
	await picture(page, "redoc");
	await close(page);
}

// ---- files that are sent: token is the path of a memory snapshot, "FOLDER/upload.pickle"

async function dropped(page, files) {
	const data = await page.evaluateHandle(files => {
		const d = new DataTransfer();
		for (const { name, base64 } of files)
			d.items.add(new File([Uint8Array.from(atob(base64), c => c.charCodeAt(0))], name));
		return d;
	}, files);
	await page.dispatchEvent("body", "dragover", { dataTransfer: data });
	assert.ok(await page.evaluate(() => document.body.classList.contains("drop")), "the page says where to drop");
	await picture(page, "drop");
	await page.dispatchEvent("body", "drop", { dataTransfer: data });
	assert.ok(!await page.evaluate(() => document.body.classList.contains("drop")), "and no longer");
}

async function upload() {
	const page = await open(), base64 = readFileSync(token).toString("base64");
	await until(page, () => Page.state.link === "open" && Page.model.hello);
	assert.match(await text(page, "#captures-none"), /Drop a recording or a memory snapshot/);
	// Picked: the capture opens, in the words of a snapshot.
	await page.setInputFiles("#file", token);
	await until(page, () => document.body.dataset.view === "trace" && document.querySelector("#table .row:not([hidden])"));
	assert.equal(await text(page, "#trace-name"), "upload.pickle");
	assert.match(await text(page, "#trace-devices"), /before the history/);
	assert.doesNotMatch(await page.innerText("body"), /before attach|Python object/);
	await picture(page, "upload");
	await page.keyboard.press("Escape");
	await until(page, () => document.body.dataset.view === "home");
	// Dropped: several are in the list, with their names as text.
	await dropped(page, [{ name: "<img src=x>.pickle", base64 }, { name: "two.pickle", base64 }]);
	await until(page, () => [...Page.model.traces.values()].filter(t => t.state === "done").length === 3);
	await until(page, () => /two\.pickle/.test(document.getElementById("trace-list").textContent));
	assert.match(await text(page, "#trace-list"), /<img src=x>\.pickle/);
	assert.equal(await page.locator("img").count(), 0, "no element is made of a name");
	// No snapshot: one line says why, and nothing stays.
	await dropped(page, [{ name: "notes.txt", base64: btoa("hello") }]);
	await until(page, () => /^notes\.txt: .*no memory snapshot of PyTorch/.test(document.getElementById("upload-says").textContent));
	await until(page, () => Page.model.traces.size === 3);
	await fits(page, "home with an error");
	await picture(page, "upload-refused");
	page.problems.splice(0, page.problems.length, ...page.problems.filter(p => !/status of 422/.test(p)));
	await close(page);
}

// ---- a server that wants a token, and goes away

async function login() {
	const page = await open();
	await page.waitForSelector("#login[open]");
	await page.fill("#token", "not " + token);
	await page.keyboard.press("Enter");
	await until(page, () => document.getElementById("login-says").textContent !== "");
	await picture(page, "login");
	await page.fill("#token", token);
	await page.keyboard.press("Enter");
	await until(page, () => !document.getElementById("login").open && Page.state.link === "open" && Page.model.hello);
	assert.ok(!(await page.evaluate(() => document.cookie)), "no script can read the session");
	await page.reload();
	await until(page, () => Page.state.link === "open" && Page.model.hello);
	assert.ok(!await page.isVisible("#login"), "it is kept");
	// Of what was refused the browser itself speaks.
	assert.deepEqual(page.problems.filter(p => !/status of 401/.test(p)), []);
	console.log("ready");
	await new Promise(done => process.stdin.once("data", done));
	await until(page, () => Page.state.link === "lost" && /not connected/.test(document.getElementById("trust").textContent));
	console.log("lost");
	await page.waitForSelector("#login[open]", { timeout: 60000 });
	await page.fill("#token", token);
	await page.keyboard.press("Enter");
	await until(page, () => Page.state.link === "open" && /● ?connected|^connected/.test(document.getElementById("trust").textContent));
	process.stdin.unref?.();
}

// ---- the ranks of a job. token: a file with the document of 4,096 ranks.

// Lightness of each cell of the grid, away from its text.
const lightness = page => page.evaluate(() => {
	const canvas = document.querySelector("#ranks-grid canvas"), r = devicePixelRatio, all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
	return Page.ranks.map.cells.map((cell, i) => {
		const [x, y] = Page.ranks.map.place(i), [red, green, blue] = all.subarray(4 * (Math.round((x + 8) * r) + canvas.width * Math.round((y - 1) * r)));
		return [cell.allocated, 0.2126 * red + 0.7152 * green + 0.0722 * blue];
	}).sort((a, b) => a[0] - b[0]);
});

// Who needs lightness only sees the same order: of more memory in light pages darker, in dark pages lighter.
async function checkScale(page, sign) {
	const cells = await lightness(page), [first, last] = [cells[0][1], cells.at(-1)[1]];
	for (let i = 1; i < cells.length; i++)
		assert.ok(sign * (cells[i][1] - cells[i - 1][1]) >= 0 && (cells[i][0] === cells[i - 1][0]) === (cells[i][1] === cells[i - 1][1]), `${cells[i - 1]} and ${cells[i]}`);
	assert.ok(sign * (last - first) > 120, `from ${first} to ${last}`);
}

const marked = page => page.evaluate(() => document.getElementById(document.getElementById("ranks-grid").getAttribute("aria-activedescendant")).textContent);
const shownRanks = page => until(page, () => document.querySelector("#ranks-odd a") && document.querySelector("#ranks-grid canvas").width);

async function checkCells(page) {
	const doc = await api(page, "trace/ranks?job=ranks-few"), odd = doc.outliers[0].recording, slow = doc.step_outliers[0].recording;
	assert.equal(await text(page, "#ranks-title"), "40 ranks of python train.py");
	const differ = await page.locator("#ranks-odd li:not(.growing)").evaluateAll(all => all.map(e => [...e.children].map(c => c.textContent)));
	const name = rank => `rank ${rank} on node${Math.floor(rank / 8)}`;
	assert.deepEqual(differ.map(d => d[0]), [odd, slow].map(name));
	assert.match(differ[0].join(), /300\.00 MiB more (\(\d+ %\) )?in all.*300\.00 MiB more at odd\.py:42 \(cache\)/);
	assert.match(differ[1][1], /^slower: 20\d ms a step, the others’ median is 10\d ms$/);
	await page.focus("#ranks-grid");
	assert.match(await marked(page), new RegExp(`^${name(odd)}, .* at the peak, 300\\.00 MiB more .*no other rank allocates like it$`));
	await page.keyboard.press("n");
	assert.match(await marked(page), new RegExp(`^${name(slow)}, `));
	for (const [key, rank] of [["ArrowRight", slow + 1], ["Home", 0], ["ArrowUp", 0], ["End", 39], ["p", slow]]) {
		await page.keyboard.press(key);
		assert.match(await marked(page), new RegExp(`^${name(rank)}, `), key);
	}
	await page.click("#ranks-twin summary");
	await until(page, () => document.querySelector("#ranks-twin tbody tr"));
	const rows = await page.locator("#ranks-twin tbody tr").evaluateAll(all => all.map(e => e.textContent));
	assert.equal(rows.length, 40);
	assert.deepEqual(rows.flatMap((r, i) => /odd\.py:42/.test(r) ? [i] : []), [odd]);
	await page.click("#ranks-twin summary");
	return odd;
}

async function ranks() {
	for (const [scheme, sign] of [["light", -1], ["dark", 1]]) {
		const page = await open("", { colorScheme: scheme });
		await until(page, () => !document.getElementById("show-ranks").disabled && [...Page.model.traces.values()].every(t => t.state === "done"));
		await page.click("#show-ranks");
		await until(page, () => Page.ranks.doc);
		assert.match(page.url(), /#\/ranks\?job=ranks-/); // of the newest, not of all
		await page.selectOption("#ranks-job", "ranks-other");
		await until(page, () => Page.ranks.doc?.recordings.length === 4 && /^4 ranks of /.test(document.getElementById("ranks-title").textContent));
		assert.deepEqual(await page.locator("#ranks-job option").allTextContents().then(all => all.sort()), ["all captures", "ranks-few (40)", "ranks-other (4)"]);
		await page.selectOption("#ranks-job", "");
		await until(page, () => Page.ranks.doc?.recordings.length === 44 && !Page.ranks.doc.one_job);
		await page.selectOption("#ranks-job", "ranks-few");
		await until(page, () => Page.ranks.doc?.recordings.length === 40);
		await shownRanks(page);
		const odd = await checkCells(page);
		await page.click("#ranks-title");
		await checkScale(page, sign);
		await picture(page, "ranks-" + scheme);
		const memory = await text(page, "#ranks-legend");
		await page.click("#ranks-colour button:has-text('Time')");
		await until(page, was => document.getElementById("ranks-legend").textContent !== was, memory);
		assert.match(page.url(), /#\/ranks\?job=ranks-few&colour=time$/);
		await page.setViewportSize({ width: 390, height: 844 });
		await fits(page, "ranks");
		await picture(page, `ranks-narrow-${scheme}`, { fullPage: true });
		await page.setViewportSize({ width: 1280, height: 900 });
		await until(page, () => document.querySelector("#ranks-grid canvas").clientWidth > 600);
		const [x, y] = await page.evaluate(i => Page.ranks.map.place(i), odd), box = await page.locator("#ranks-grid canvas").boundingBox();
		await page.mouse.move(box.x + x, box.y + y);
		assert.match(await text(page, "#tip"), new RegExp(`^rank ${odd}`));
		await page.mouse.click(box.x + x, box.y + y);
		await until(page, () => Page.state.route.view === "trace" && document.querySelector("#table .row"));
		assert.match(page.url(), new RegExp(`#/trace/trace_rank-${odd}$`));
		await page.goBack();
		await until(page, () => Page.state.route.view === "ranks");
		await page.evaluate(() => { Page.go("#/"); Page.set({ marked: new Set(["trace_rank-3", "trace_rank-5"]) }); });
		await page.click("#show-ranks:has-text('Ranks of 2')");
		await until(page, () => Page.ranks.doc?.recordings.length === 2);
		assert.match(page.url(), /#\/ranks\?traces=trace_rank-[35],trace_rank-[35]$/);
		await close(page);
	}
	const page = await open(), body = readFileSync(token, "utf8");
	await page.route("**/api/trace/ranks*", r => r.fulfill({ contentType: "application/json", body }));
	await page.evaluate(() => Page.go("#/ranks"));
	await shownRanks(page);
	await page.focus("#ranks-grid");
	await page.keyboard.press("End");
	assert.match(await marked(page), /^rank 4095 on node511, /);
	const [elements, time] = await page.evaluate(() => {
		const begun = performance.now();
		for (let i = 0; i < 5; i++)
			Page.ranks.map.draw();
		return [document.querySelectorAll("#ranks *").length, (performance.now() - begun) / 5];
	});
	assert.ok(elements < 150 && time < 200, `${elements} elements, ${time} ms to draw`);
	await picture(page, "ranks-many");
	await close(page);
}

// The GPU of the process: what is free, and the other processes. TOKEN is the text that comes.
async function others() {
	for (const scheme of ["light", "dark"]) {
		const page = await open("", { colorScheme: scheme });
		await until(page, () => document.querySelector("#others li"));
		assert.equal(await text(page, "#others"), token);
		assert.match(await page.getAttribute("#others li span:nth-child(2)", "title"), /\.py|sleep/, "the whole command");
		await picture(page, "others-" + scheme);
		await page.setViewportSize({ width: 390, height: 844 });
		await fits(page, "others");
		await picture(page, `others-narrow-${scheme}`, { fullPage: true });
		await close(page);
	}
}

await { use, docs, login, ranks, upload, others }[what]();
await quit(browser);
