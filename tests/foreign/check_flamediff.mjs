// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens the flame graph of two recordings in headless Chromium and compares it with the report of the same two:
//   node check_flamediff.mjs PAGE.html DIFF.json [FOLDER FOR SCREENSHOTS]
// DIFF.json: diff --by stack --format json. $CHROMIUM names the browser. Exit 77: there is none.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { resolve, join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [file, report, shots] = process.argv.slice(2);
const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
if (!file || !report) {
	console.error("usage: node check_flamediff.mjs PAGE.html DIFF.json [SCREENSHOT FOLDER]");
	process.exit(64);
}
if (!existsSync(browserPath)) {
	console.error(`SKIP: no browser at ${browserPath}`);
	process.exit(77);
}
const doc = JSON.parse(readFileSync(report, "utf-8"));
const url = pathToFileURL(resolve(file)).href;
const browser = await chromium.launch({
	executablePath: browserPath,
	args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});

async function open(options) {
	const page = await (await browser.newContext(options)).newPage();
	page.problems = [];
	page.on("console", m => page.problems.push(`console ${m.type()}: ${m.text()}`));
	page.on("pageerror", e => page.problems.push(`error: ${e}`));
	page.on("request", r => { if (r.url() !== url) page.problems.push(`request: ${r.url()}`); });
	await page.goto(url);
	await page.waitForSelector(".f");
	return page;
}

const close = async page => {
	assert.deepEqual(page.problems, []);
	await page.context().close();
};

const sum = list => list.reduce((a, b) => a + b, 0);

// The data are the report's, stack by stack, and the sums those of the two recordings.
async function checkData(page) {
	const v = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent).devices[0].views[0]);
	const pairs = list => list.map(([a, b]) => `${a} ${b}`).sort();
	assert.deepEqual(pairs(v.old.map((o, i) => [o, v.new[i]])), pairs(doc.rows.map(r => [r.old_bytes, r.new_bytes])));
	assert.equal(sum(v.old), doc.old.allocated);
	assert.equal(sum(v.new), doc.new.allocated);
	return v;
}

const words = n => page.evaluate(bytes => Words.bytes(bytes), n);
const sizes = () => page.$$eval("#views button span", spans => spans.map(s => s.textContent));

async function checkViews(v) {
	const both = sum(v.old.map((o, i) => Math.max(o, v.new[i])));
	assert.deepEqual(await sizes(), [await words(both), await words(doc.old.allocated), await words(doc.new.allocated)]);
	for (let i = 0; i < 3; i++) {
		await page.locator("#views button").nth(i).click();
		const root = await page.locator(".f").first().getAttribute("aria-label");
		assert.ok(root.includes(`, ${(await sizes())[i]}, `), `${root} is as wide as the view`);
	}
	await page.locator("#views button").first().click();
}

// A stack that is gone is drawn, as wide as it was, and is not there in the new view; and the other way round.
async function checkGone() {
	for (const [status, cls, view] of [["gone", "shrank", 2], ["new", "grew", 1]]) {
		if (!doc.rows.some(r => r.status === status && Math.abs(r.change) > 0.02 * doc.old.allocated))
			continue;
		const whole = page.locator(`.f.${cls}.c4:not(.more)`);
		assert.ok(await whole.count() > 0, `${status} stacks are drawn`);
		const label = await whole.last().getAttribute("aria-label");
		assert.ok(label.includes(`, ${status}, `), label);
		await page.locator("#views button").nth(view).click();
		assert.equal(await page.locator(`.f.${cls}.c4:not(.more)`).count(), 0, `what is ${status} has no width on the other side`);
		await page.locator("#views button").first().click();
	}
}

// A search for a frame that only one recording has finds nothing in the other's view.
async function checkAbsent() {
	const [onlyOld, onlyNew] = await page.evaluate(() => {
		const d = JSON.parse(document.getElementById("data").textContent), v = d.devices[0].views[0];
		// Names and files of a side's frames.
		const texts = sizes => {
			const all = new Set();
			v.node.forEach((node, i) => {
				for (let n = node; sizes[i] && n >= 0; n = d.nodes.parent[n])
					for (const k of [0, 1])
						all.add((d.strings[d.frames[4 * d.nodes.frame[n] + k]] ?? "").toLowerCase());
			});
			return [...all];
		};
		const without = (a, b) => a.filter(text => !b.some(other => other.includes(text)));
		return [without(texts(v.old), texts(v.new)), without(texts(v.new), texts(v.old))];
	});
	await page.uncheck("#hide-torch");
	for (const [names, has, hasNot] of [[onlyOld, 1, 2], [onlyNew, 2, 1]])
		for (const name of names.slice(0, 3)) {
			await page.fill("#search", name);
			await page.locator("#views button").nth(has).click();
			assert.match(await page.textContent("#matched"), / matched · /, `${name} is in view ${has}`);
			await page.locator("#views button").nth(hasNot).click();
			assert.equal(await page.textContent("#matched"), "no match", `${name} is not in view ${hasNot}`);
		}
	await page.fill("#search", "");
	await page.check("#hide-torch");
	await page.locator("#views button").first().click();
}

async function checkTooltip() {
	const f = page.locator(".f:not(.more)").nth(1);
	await f.hover();
	const text = await page.locator("#tip").textContent();
	assert.ok(/→|unchanged/.test(text), `both figures are in ${text}`);
	await page.mouse.move(2, 2);
}

// The table is the page's text: it adds up to the two recordings.
async function checkTable() {
	await page.click("#table summary");
	const foot = await page.$$eval("#table tfoot td", cells => cells.map(c => c.textContent));
	assert.deepEqual(foot.slice(1, 3), [await words(doc.old.allocated), await words(doc.new.allocated)]);
	assert.ok(await page.locator("#table tbody tr").count() > 3);
	await page.click("#table summary");
}

let page = await open({ viewport: { width: 1280, height: 800 } });
const view = await checkData(page);
await checkViews(view);
await checkGone();
await checkAbsent();
await checkTooltip();
await checkTable();
await page.check("#leaf-first");
assert.ok((await page.locator(".f").first().getAttribute("aria-label")).length > 0);
await page.uncheck("#leaf-first");
await page.uncheck("#hide-torch");
await checkViews(view);
await close(page);

for (const width of [1280, 380])
	for (const colorScheme of ["light", "dark"]) {
		page = await open({ viewport: { width, height: 900 }, colorScheme });
		assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing overflows sideways");
		if (shots) {
			mkdirSync(shots, { recursive: true });
			await page.screenshot({ path: join(shots, `diff-${width}-${colorScheme}.png`) });
			await page.click("#table summary");
			await page.screenshot({ path: join(shots, `diff-${width}-${colorScheme}-table.png`), fullPage: true });
		}
		await close(page);
	}
await browser.close();
console.log(`${file}: the flame graph of two recordings works`);
