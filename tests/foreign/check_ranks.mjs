// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens the page of `report --format html` in headless Chromium, without a network, in three sizes, light and dark:
//   node check_ranks.mjs PAGE FOLDER NAME ODD RANKS
// NAME: of the pictures in FOLDER. ODD: the rank that differs at odd.py:42. Exit 77: there is no browser.
import { join } from "node:path";
import assert from "node:assert/strict";
import { close, launch, open } from "./page.mjs";

const [file, folder, name, odd, ranks] = process.argv.slice(2);
const browser = await launch();
for (const [scheme, width, height] of [["light", 1280, 800], ["dark", 1400, 900], ["light", 390, 844]]) {
	const page = await open(browser, file, { viewport: { width, height }, colorScheme: scheme });
	await page.waitForFunction(() => document.querySelector("#ranks-grid canvas").width > 0);
	assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than the screen");
	assert.equal(await page.title(), `${Number(ranks).toLocaleString("en-US")} ranks of python train.py`);
	assert.ok(await page.evaluate(() => { const f = document.getElementById("ranks-facts"); return f.textContent && f.scrollWidth <= f.clientWidth; }), "the facts are not cut");
	const grid = await page.locator("#ranks-grid").boundingBox();
	assert.ok(grid.height > 300 && grid.width > 250, `the grid has ${grid.width} x ${grid.height}`);
	assert.match(await page.textContent("#ranks-odd"), new RegExp(`^In ranks [\\d,-]+: growth not known in \\d+ steps: record 100rank ${odd}.*300\\.00 MiB more at odd\\.py:42 \\(cache\\)`));
	await page.focus("#ranks-grid");
	const place = rank => `rank ${rank} on node${Math.floor(rank / 8)}`;
	const marked = () => page.evaluate(() => document.getElementById(document.getElementById("ranks-grid").getAttribute("aria-activedescendant")).textContent);
	await page.keyboard.press("End");
	assert.match(await marked(), new RegExp(`^${place(ranks - 1)}, `));
	await page.keyboard.press("n");
	assert.match(await marked(), new RegExp(`^${place(odd)}, `));
	assert.match(await page.textContent("#ranks-at"), new RegExp(`its page: memtrace-bpf export html rank-${odd}\\.mtr$`));
	await page.screenshot({ path: join(folder, `${name}-${scheme}-${width}.png`), fullPage: width < 800 });
	const legend = await page.textContent("#ranks-legend");
	await page.selectOption("#colour", "time");
	assert.notEqual(await page.textContent("#ranks-legend"), legend);
	await page.click("#theme");
	assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), scheme);
	await close(page);
}
await browser.close();
