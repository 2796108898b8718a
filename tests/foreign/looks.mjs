// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens pages at three sizes, light and dark:
//   node looks.mjs FOLDER NAME=FILE_OR_URL ...
// A page may not write to the console, throw, ask for anything else, or be wider than the screen. FOLDER gets pictures to look
// at, and looks.json: what each page says, by name and browser. BROWSERS=all takes Firefox, too, where it is installed.
// $CHROMIUM and $FIREFOX name the browsers. Exit 77: there is none.
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import { browsers } from "./page.mjs";

const [folder, ...args] = process.argv.slice(2);
const SIZES = [[1400, 900], [1280, 700], [390, 844]];
const said = {};

// What an exported page says about findings and growth. Others: all of their text.
const words = page => page.evaluate(() => typeof Growth === "undefined" || !Page.findings ? { text: document.body.innerText } : {
	findings: [...document.querySelectorAll("#findings li")].map(li => li.innerText.replace(/\s+/g, " ").trim()),
	verdict: document.getElementById("verdict").hidden ? "" : document.getElementById("verdict").innerText.replace(/\s+/g, " ").trim(),
	columns: [...document.querySelectorAll("#table .row-head button")].map(b => b.textContent),
	tabs: Page.tabsHere,
	choice: document.getElementById("choice-text").innerText.replace(/\s+/g, " ").trim(),
	growth: document.getElementById("view").innerText.replace(/\s+/g, " ").trim(),
	curves: [...document.querySelectorAll("#view .curve polyline")].map(c => c.getAttribute("points").split(" ").length),
});

// A view of the dashboard is there once what the server sent for it is shown. A test serves a capture with a known growth.
const shown = () => !document.getElementById("home") || (!document.querySelector("#trace:not([hidden])") || document.querySelector("#trace-findings li")) && Boolean(document.querySelector(
	"main:not([hidden]) :is(#job-growth:not([hidden]), #table:not([hidden], [aria-busy]) .row, #leaks .growth, #diff-table .row)"));

// Texts that may not be cut, and heads of columns that are not aligned as their columns.
const faults = () => {
	const seen = e => e.getClientRects().length > 0;
	const cut = [...document.querySelectorAll("button, .button, .row-head *, .k-growth, .tile *, .findings *, #job-growth, #trust li, #tabs *, h2, .c-size, .c-category, .g-size, .g-category")]
		.filter(e => seen(e) && getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1).map(e => `${e.className || e.id || e.tagName} is cut: ${e.textContent}`);
	const right = e => getComputedStyle(e).textAlign === "right";
	const crooked = [...document.querySelectorAll(".row-head")].filter(seen).flatMap(head => {
		const row = head.parentElement.querySelector(".row:not([hidden])");
		return row && seen(row) ? [...head.children].filter((h, i) => seen(h) && h.textContent && seen(row.children[i]) && right(h) !== right(row.children[i])).map(h => `${h.textContent} is not aligned as its column`) : [];
	});
	const form = document.getElementById("capture"), below = form && seen(form) && form.getBoundingClientRect().bottom > form.parentElement.getBoundingClientRect().bottom + 1;
	return [...cut, ...crooked, ...(below ? ["the form of a capture is below its panel"] : [])];
};

async function look(browser, name, target, scheme) {
	const url = /^https?:/.test(target) ? target : pathToFileURL(resolve(target)).href;
	const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: scheme }), page = await context.newPage(), problems = [];
	page.on("console", m => problems.push(`console ${m.type()}: ${m.text()}`));
	page.on("pageerror", e => problems.push(`error: ${e}`));
	page.on("request", r => { if (!r.url().startsWith(url.split("#")[0]) && !r.url().startsWith("data:")) problems.push(`request: ${r.url()}`); });
	await page.goto(url);
	await page.waitForFunction(() => !document.body.dataset.state || document.body.dataset.state === "ready");
	await page.waitForFunction(shown);
	assert.equal(await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches), scheme === "dark", `${browser.kind}: the colour scheme`);
	for (const tab of await page.evaluate(() => typeof Page === "undefined" || !Page.tabsHere ? [""] : ["growth", "flame"]))
		for (const [width, height] of SIZES) {
			const what = [name, tab, width, scheme, browser.kind].filter(Boolean).join("-");
			await page.setViewportSize({ width, height });
			if (tab)
				await page.evaluate(tab => Page.set({ tab }), tab);
			await page.waitForTimeout(150);
			assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what}: nothing is wider than the screen`);
			problems.push(...(await page.evaluate(faults)).map(text => `${what}: ${text}`));
			await page.screenshot({ path: join(folder, what + ".png"), fullPage: width < 800 });
			if (tab !== "flame")
				(said[name] ??= {})[`${browser.kind} ${width}`] = await words(page);
		}
	assert.deepEqual(problems, [], `${name}, ${browser.kind}`);
	await context.close();
}

if (!args.length || args.some(a => !a.includes("="))) {
	console.error("usage: node looks.mjs FOLDER NAME=FILE_OR_URL ...");
	process.exit(64);
}
mkdirSync(folder, { recursive: true });
for (const open of browsers(process.env.BROWSERS === "all"))
	for (const scheme of ["light", "dark"]) {
		const browser = await open(scheme);
		for (const arg of args)
			await look(browser, arg.slice(0, arg.indexOf("=")), arg.slice(arg.indexOf("=") + 1), scheme);
		console.log(`${browser.kind} ${browser.version()}, ${scheme}`);
		await browser.close();
	}
writeFileSync(join(folder, "looks.json"), JSON.stringify(said));
