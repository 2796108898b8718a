// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens a flame graph page in headless Chromium and uses it as a person would:
//   node check_flamegraph.mjs PAGE.html [FOLDER FOR SCREENSHOTS]
// $CHROMIUM names the browser (default /usr/bin/chromium). Exit 77: there is none.
import { existsSync, mkdirSync } from "node:fs";
import { resolve, join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [page_, shots] = process.argv.slice(2);
const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
if (!page_) {
	console.error("usage: node check_flamegraph.mjs PAGE.html [SCREENSHOT FOLDER]");
	process.exit(64);
}
if (!existsSync(browserPath)) {
	console.error(`SKIP: no browser at ${browserPath}`);
	process.exit(77);
}
const url = pathToFileURL(resolve(page_)).href;

const browser = await chromium.launch({
	executablePath: browserPath,
	args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});

async function open(options) {
	const context = await browser.newContext(options);
	const page = await context.newPage();
	page.problems = [];
	page.on("console", m => { if (m.type() !== "log") page.problems.push(`console ${m.type()}: ${m.text()}`); });
	page.on("pageerror", e => page.problems.push(`error: ${e}`));
	page.on("request", r => { if (r.url() !== url) page.problems.push(`request: ${r.url()}`); });
	page.on("dialog", d => { page.problems.push(`dialog: ${d.message()}`); d.dismiss(); });
	await page.goto(url);
	await page.waitForSelector(".f");
	return page;
}

const close = async page => {
	assert.deepEqual(page.problems, []);
	await page.context().close();
};

// [{name, left, top, width}] of what is drawn.
const drawn = page => page.$$eval(".f:not(.more)", els => els.map(e => ({
	name: e.getAttribute("aria-label"), left: e.getBoundingClientRect().left - e.parentElement.getBoundingClientRect().left,
	top: e.offsetTop, width: e.getBoundingClientRect().width,
	cls: e.className,
})));
const frame = (page, text) => page.locator(".f:not(.more)", { hasText: text }).first();
const sizeOf = label => label.split(", ").slice(-2)[0];

async function checkShape(page) {
	const all = await drawn(page);
	const width = await page.$eval("#graph", g => g.clientWidth);
	assert.ok(all.length > 1, "frames are drawn");
	assert.ok(all.every(f => f.left >= 0 && f.left + f.width <= width + 1.5), "no frame leaves the graph");
	assert.ok(Math.abs(all[0].width - width) <= 2, "the root takes the whole width");
	const rows = new Map();
	for (const f of all)
		rows.set(f.top, [...(rows.get(f.top) ?? []), f]);
	for (const row of rows.values()) {
		row.sort((a, b) => a.left - b.left);
		for (let i = 1; i < row.length; i++)
			assert.ok(row[i].left + 0.1 >= row[i - 1].left + row[i - 1].width,
				`frames of a row do not overlap: ${JSON.stringify(row.slice(i - 1, i + 1))}`);
	}
	assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, "nothing overflows sideways");
}

async function checkData(page) {
	// What is said of the root is the sum of the data.
	const [sum, title, text] = await page.evaluate(() => {
		const d = JSON.parse(document.getElementById("data").textContent);
		const main = d.devices.find(x => x.main) ?? d.devices[0];
		return [main.views[0].bytes.reduce((a, b) => a + b, 0), document.title, document.getElementById("headline").textContent];
	});
	const gib = sum >= 2 ** 30 ? (sum / 2 ** 30).toFixed(2) + " GiB" : null;
	if (gib && sum < 1000 * 2 ** 30)
		assert.ok(text.startsWith(gib) && title.startsWith(gib), `headline ${text} says ${gib}`);
	assert.match(title, /PID /);
	const legend = await page.$$eval("#legend i", is => is.map(i => i.className));
	const kinds = new Set((await drawn(page)).map(f => f.cls.split(" ")[1]).filter(k => k !== "root"));
	assert.ok([...kinds].every(k => legend.includes(k)), `the legend has ${[...kinds]}: ${legend}`);
}

async function checkZoom(page) {
	const before = await drawn(page);
	const width = before[0].width;
	const target = before.findLast(f => f.width > 60 && f.width < width / 2) ??
		before.findLast(f => f.width > 6 && f.width < width - 4);
	if (!target) {
		console.log("zoom was not tried: all frames are as wide as the root");
		return;
	}
	assert.equal(await page.isDisabled("#reset"), true);
	await page.locator(`.f[aria-label="${target.name.replace(/(["\\])/g, "\\$1")}"]`).last().click();
	const zoomed = (await drawn(page)).find(f => f.name === target.name);
	assert.ok(Math.abs(zoomed.width - width) <= 2, "the zoomed frame takes the whole width");
	assert.ok((await page.textContent("#d-name")).length > 0);
	assert.equal(await page.isDisabled("#reset"), false);
	await page.click("#reset");
	assert.deepEqual((await drawn(page)).map(f => f.name), before.map(f => f.name));
	await page.locator(".f").nth(2).click();
	await page.keyboard.press("Escape");
	assert.deepEqual((await drawn(page)).map(f => f.name), before.map(f => f.name), "Escape zooms out");
}

// What a word matches, worked out from the data and not by the page: percent of the bytes of the stacks with it.
const shareOf = (page, word) => page.evaluate(text => {
	const d = JSON.parse(document.getElementById("data").textContent);
	const view = (d.devices.find(x => x.main) ?? d.devices[0]).views[0];
	const hit = i => [0, 1].some(k => d.frames[4 * i + k] >= 0 &&
		d.strings[d.frames[4 * i + k]].toLowerCase().includes(text.toLowerCase()));
	let sum = 0, all = 0;
	view.node.forEach((node, i) => {
		let found = false;
		const stack = [];
		for (let n = node; n >= 0; n = d.nodes.parent[n])
			stack.push(d.nodes.frame[n]);
		const kept = stack.filter(f => d.frames[4 * f + 3] !== 2); // torch internals are hidden
		for (const f of kept.length ? kept : stack.slice(0, 1))
			found ||= hit(f);
		sum += found ? view.bytes[i] : 0;
		all += view.bytes[i];
	});
	return 100 * sum / all;
}, word);

async function checkSearch(page) {
	const word = await page.evaluate(() => {
		const names = [...document.querySelectorAll(".f:not(.more) .t")].map(t => t.firstChild.textContent);
		return names.findLast(n => n.length > 4);
	});
	await page.keyboard.press("Control+f");
	assert.equal(await page.evaluate(() => document.activeElement.id), "search", "Ctrl-F goes to the search box");
	await page.keyboard.type(word.toUpperCase());
	const matched = await page.textContent("#matched");
	assert.match(matched, /^[\d.]+ % matched · [\d.]+ /);
	assert.ok(Math.abs(parseFloat(matched) - await shareOf(page, word)) < 0.06, `${matched} of ${word}`);
	assert.ok(await page.locator(".f.hit").count() > 0);
	assert.ok(await page.$eval("#graph", g => g.classList.contains("searching")));
	await page.fill("#search", "no frame is called this");
	assert.equal(await page.textContent("#matched"), "no match");
	await page.focus("#search");
	await page.keyboard.press("Escape");
	assert.equal(await page.inputValue("#search"), "");
	assert.equal(await page.textContent("#matched"), "");
	assert.equal(await page.locator(".f.hit").count(), 0);
}

async function checkToggles(page) {
	const hidden = await drawn(page);
	await page.uncheck("#hide-torch");
	const shown = await drawn(page);
	const torch = fs => fs.filter(f => f.cls.split(" ").includes("torch")).length;
	assert.equal(sizeOf(shown[0].name), sizeOf(hidden[0].name), "hiding frames hides no bytes");
	if (torch(shown)) {
		assert.ok(torch(shown) > torch(hidden), "torch internals are hidden at first");
		await checkShape(page);
	}
	await page.check("#hide-torch");
	assert.deepEqual((await drawn(page)).map(f => f.name), hidden.map(f => f.name));

	assert.equal(hidden[0].top, 0, "root on top");
	await page.uncheck("#icicle");
	const flame = await drawn(page);
	assert.ok(flame.slice(1).every(f => f.top < flame[0].top), "root at the bottom");
	await page.check("#icicle");

	if (await page.isVisible("#merge")) {
		await page.check("#merge");
		const merged = await drawn(page);
		assert.ok(merged.some(f => /(^|\.)\*[. ]/.test(f.name)), "numbered layers are one");
		assert.equal(sizeOf(merged[0].name), sizeOf(hidden[0].name), "merging loses no bytes");
		await checkShape(page);
		await page.uncheck("#merge");
	}

	await page.check("#leaf-first");
	const leaf = await drawn(page);
	assert.equal(sizeOf(leaf[0].name), sizeOf(hidden[0].name));
	await checkShape(page);
	await page.uncheck("#leaf-first");
}

async function checkViews(page) {
	const views = page.locator("#views button");
	const n = await views.count();
	for (let i = 0; i < n; i++) {
		await views.nth(i).click();
		assert.equal(await views.nth(i).getAttribute("aria-checked"), "true");
		const size = await views.nth(i).locator("span").textContent();
		assert.ok((await page.textContent("#headline")).startsWith(size), "the headline is of the view");
		if (size !== "0 B")
			await checkShape(page);
	}
	await views.first().click();
	await page.keyboard.press("ArrowRight");
	assert.equal(await views.nth(n > 1 ? 1 : 0).getAttribute("aria-checked"), "true", "arrow keys choose a view");
	await views.first().click();
	const devices = await page.locator("#device option").count();
	assert.equal(await page.isVisible("#device"), devices > 1);
	for (let i = 0; i < devices && devices > 1; i++) {
		await page.selectOption("#device", String(i));
		const name = await page.locator("#device option").nth(i).textContent();
		assert.ok((await page.textContent("#headline")).includes(name));
	}
	if (devices > 1)
		await page.selectOption("#device", String(await page.evaluate(() => Math.max(0, JSON.parse(document.getElementById("data").textContent).devices.findIndex(d => d.main)))));
}

async function checkKeyboardAndPointer(page) {
	await page.focus("#graph");
	await page.keyboard.press("Home");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("ArrowDown");
	const name = await page.textContent("#d-name");
	assert.ok(name && await page.locator(".f.at").count() === 1, "the arrow keys mark a frame");
	assert.equal(await page.getAttribute("#graph", "aria-activedescendant"), await page.locator(".f.at").getAttribute("id"));
	await page.keyboard.press("Enter");
	assert.equal(await page.isDisabled("#reset"), false, "Enter zooms");
	await page.keyboard.press("ArrowUp");
	await page.keyboard.press("Escape");
	assert.equal(await page.isDisabled("#reset"), true);
	await page.locator(".f").nth(1).hover();
	assert.ok(await page.isVisible("#tip"));
	assert.equal(await page.locator("#tip b").textContent(), await page.textContent("#d-name"));
	await page.mouse.move(2, 2);
	assert.ok(!await page.isVisible("#tip"));
}

let page = await open({ viewport: { width: 1280, height: 800 } });
await checkShape(page);
await checkData(page);
await checkZoom(page);
await checkSearch(page);
await checkToggles(page);
await checkViews(page);
await checkKeyboardAndPointer(page);
await page.setViewportSize({ width: 390, height: 844 });
assert.deepEqual(await page.$$eval(".f .t", els => els.filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).textOverflow !== "ellipsis").map(e => e.textContent)), [],
	"names that are cut end in an ellipsis");
await page.setViewportSize({ width: 640, height: 800 });
await page.waitForTimeout(100);
await checkShape(page);
await close(page);

// Without scripts the page says why it is empty, and still asks for nothing.
const context = await browser.newContext({ javaScriptEnabled: false });
page = await context.newPage();
await page.goto(url);
assert.ok(await page.isVisible("noscript p, body > p.warn"));
await context.close();

if (shots)
	mkdirSync(shots, { recursive: true });
for (const width of [1280, 380])
	for (const colorScheme of ["light", "dark"]) {
		page = await open({ viewport: { width, height: width === 380 ? 800 : 900 }, colorScheme, hasTouch: width === 380 });
		await checkShape(page);
		if (shots) {
			await page.screenshot({ path: join(shots, `${width}-${colorScheme}.png`) });
			if (await page.isVisible("#merge"))
				await page.check("#merge");
			await page.fill("#search", "mlp");
			await page.locator(".f").nth(4).click();
			await page.screenshot({ path: join(shots, `${width}-${colorScheme}-search.png`) });
		}
		await close(page);
	}
await browser.close();
console.log(`${page_}: flame graph page works`);
