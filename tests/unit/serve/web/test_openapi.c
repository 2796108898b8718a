/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The route table is complete, paths find their routes, and all references in its schema
 * resolve. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "serve/web/openapi.h"
#include "serve/web/validate.h"
#include "serve/web/web.h"

static json_t *schema(const char *limits, const char *cookie)
{
	size_t size;
	json_t *l = limits ? json_loads(limits, 0, NULL) : NULL;
	char *text = openapi__text(route_tables, l, cookie, &size);
	json_t *doc;

	assert_non_null(text);
	assert_int_equal(strlen(text), size);
	doc = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(doc);
	free(text);
	json_decref(l);
	return doc;
}

static size_t count(const struct field *f)
{
	size_t n = 0;

	while (f && f[n].name)
		n++;
	return n;
}

static void test_table(void **state)
{
	const struct route *r, *other;

	for (size_t i = 0; (r = routes__at(route_tables, i)); i++) {
		size_t braces = 0;

		assert_non_null(r->id);
		assert_non_null(r->tag);
		assert_non_null(r->summary);
		assert_non_null(r->answers);
		assert_non_null(r->handle);
		for (const char *p = r->path; (p = strchr(p, '{')); p++) {
			const struct field *f = &r->in_path[braces++];

			assert_true(braces <= count(r->in_path));
			assert_int_equal(strncmp(p + 1, f->name, strlen(f->name)), 0);
			assert_int_equal(p[1 + strlen(f->name)], '}');
		}
		assert_int_equal(braces, count(r->in_path));
		assert_true(braces <= 4);
		assert_true(count(r->in_query) <= WEB_PARAMS);
		/* Routes that change state cannot be called with GET. */
		assert_true(strcmp(r->method, "GET") ? r->flags & ROUTE_CHANGES
						     : !(r->flags & ROUTE_CHANGES));
		for (size_t k = i + 1; (other = routes__at(route_tables, k)); k++) {
			assert_true(strcmp(r->id, other->id));
			assert_true(strcmp(r->path, other->path) ||
				    strcmp(r->method, other->method));
		}
	}
	assert_true(r == NULL);
}

static const char *found(const char *method, const char *path, char *allow)
{
	char copy[200], *values[4];
	const struct route *r;
	size_t n;

	snprintf(copy, sizeof(copy), "%s", path);
	r = routes__find(route_tables, method, copy, values, &n, allow, 128);
	for (size_t i = 0; r && i < n; i++)
		assert_true(values[i] >= copy && values[i] < copy + sizeof(copy) && *values[i]);
	return r ? r->id : "";
}

static void test_find(void **state)
{
	char allow[128], path[] = "/api/trace/a.b/stream", *values[4];
	size_t n;

	assert_string_equal(found("GET", "/api/trace/list", allow), "listTraces");
	assert_string_equal(found("HEAD", "/api/trace/list", allow), "listTraces");
	assert_string_equal(found("DELETE", "/api/trace/list", allow), "");
	assert_string_equal(allow, "GET, HEAD, OPTIONS");
	assert_string_equal(found("GET", "/api/trace/x", allow), "getTrace");
	assert_string_equal(found("DELETE", "/api/trace/x", allow), "deleteTrace");
	assert_string_equal(found("PUT", "/api/trace/x", allow), "");
	assert_string_equal(allow, "GET, HEAD, DELETE, OPTIONS");
	assert_string_equal(found("GET", "/api/trace/x/", allow), "");
	assert_string_equal(allow, "");
	assert_string_equal(found("GET", "/api/trace/", allow), "");
	assert_string_equal(found("GET", "//api/trace/list", allow), "");
	assert_string_equal(found("GET", "", allow), "");
	assert_string_equal(found("get", "/api/health", allow), "");
	assert_non_null(routes__find(route_tables, "GET", path, values, &n, allow, sizeof(allow)));
	assert_int_equal(n, 1);
	assert_string_equal(values[0], "a.b");
}

/* Every "$ref" resolves. */
static void check_refs(const json_t *doc, const json_t *v)
{
	const char *key, *ref;
	json_t *member;
	size_t i;

	json_array_foreach(v, i, member)
		check_refs(doc, member);
	json_object_foreach((json_t *)v, key, member) {
		check_refs(doc, member);
		if (strcmp(key, "$ref"))
			continue;
		ref = json_string_value(member);
		assert_int_equal(strncmp(ref, "#/components/schemas/", 21), 0);
		if (!json_object_get(json_object_get(json_object_get(doc, "components"), "schemas"),
				     ref + 21))
			fail_msg("%s is nowhere", ref);
	}
}

static void test_schema(void **state)
{
	json_t *doc = schema(NULL, NULL), *paths = json_object_get(doc, "paths");
	const struct route *r;

	for (const struct openapi_schema *s = openapi_schemas; s->name; s++)
		if (!json_object_get(json_object_get(json_object_get(doc, "components"), "schemas"),
				     s->name))
			fail_msg("the schema of %s is not JSON", s->name);
	check_refs(doc, doc);
	for (size_t i = 0; (r = routes__at(route_tables, i)); i++)
		assert_non_null(json_object_get(paths, r->path));
	assert_null(json_object_get(doc, "security"));
	json_decref(doc);
	doc = schema(NULL, "biscuit");
	assert_int_equal(json_array_size(json_object_get(doc, "security")), 2);
	check_refs(doc, doc);
	json_decref(doc);
}

static void check_pattern(const json_t *pattern)
{
	const char *text = json_string_value(pattern);

	if (text && strstr(text, "[:"))
		fail_msg("JavaScript does not know %s", text);
}

/* Expressions of the schema, wherever they are. */
static void check_patterns(const json_t *v)
{
	const char *key;
	json_t *member;
	size_t i;

	check_pattern(json_object_get(v, "pattern"));
	json_array_foreach(v, i, member)
		check_patterns(member);
	json_object_foreach((json_t *)v, key, member)
		check_patterns(member);
}

static void test_patterns(void **state)
{
	json_t *doc = schema(NULL, NULL), *at = NULL;

	check_patterns(doc);
	assert_int_equal(json_unpack(doc, "{s:{s:{s:{s:{s:{s:{s:{s:{s:o}}}}}}}}}", "paths",
				     "/api/trace/export", "post", "requestBody", "content",
				     "application/json", "schema", "properties", "at", &at),
			 0);
	assert_non_null(strstr(json_string_value(json_object_get(at, "pattern")),
			       "|mark:[^\\u0000-\\u001f\\u007f]{1,127})$"));
	json_decref(doc);
}

static json_int_t most_events(const json_t *doc)
{
	json_t *max = NULL;

	assert_int_equal(json_unpack((json_t *)doc, "{s:{s:{s:{s:{s:{s:{s:{s:{s:{s:o}}}}}}}}}}",
				     "paths", "/api/trace/memory", "post", "requestBody", "content",
				     "application/json", "schema", "properties", "max_events",
				     "maximum", &max),
			 0);
	return json_integer_value(max);
}

static void test_limits(void **state)
{
	json_t *doc = schema("{\"max_events\": 5000, \"max_duration_s\": 60}", NULL);

	assert_int_equal(most_events(doc), 5000);
	json_decref(doc);
	doc = schema(NULL, NULL);
	assert_true(most_events(doc) > 5000);
	json_decref(doc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),  cmocka_unit_test(test_find),
		cmocka_unit_test(test_schema), cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
