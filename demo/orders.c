// SPDX-License-Identifier: Apache-2.0
//
// The demo's web shop: it parses orders, checks passwords and prints receipts,
// for 40 % of one CPU. The work is real, the customers are not.
#include "serve.h"

static const char body[] =
	"{\"customer\": 4711, \"items\": [{\"sku\": 12, \"count\": 3, \"price\": 499},"
	" {\"sku\": 77, \"count\": 1, \"price\": 12900}, {\"sku\": 5, \"count\": 24, \"price\": 65}],"
	" \"coupon\": \"SPRING\", \"paid\": 15957}";

static volatile unsigned long result;

NOINLINE static const char *parse_string(const char *p, unsigned *hash)
{
	KEEP_FRAME;
	unsigned h = 5381;
	for (p++; *p && *p != '"'; p++)
		h = h * 33 + (unsigned char)*p;
	*hash = h;
	return *p ? p + 1 : p;
}

NOINLINE static const char *parse_number(const char *p, unsigned *value)
{
	KEEP_FRAME;
	unsigned v = 0;
	for (; *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (unsigned)(*p - '0');
	*value = v;
	return p;
}

NOINLINE static unsigned json_parse(const char *p)
{
	unsigned sum = 0, v;
	while (*p) {
		if (*p == '"') {
			p = parse_string(p, &v);
			sum ^= v;
		} else if (*p >= '0' && *p <= '9') {
			p = parse_number(p, &v);
			sum += v;
		} else {
			p++;
		}
	}
	return sum;
}

NOINLINE static unsigned hash_password(unsigned seed)
{
	KEEP_FRAME;
	unsigned h = 2166136261u ^ seed;
	for (int round = 0; round < 16000; round++)
		h = (h ^ (h >> 13)) * 16777619u + (unsigned)round;
	return h;
}

NOINLINE static int check_login(unsigned customer)
{
	KEEP_FRAME;
	return hash_password(customer) != 0;
}

NOINLINE static unsigned render_receipt(unsigned total)
{
	KEEP_FRAME;
	static char page[2048];
	unsigned sum = 0;
	for (unsigned i = 0; i < sizeof page; i++) {
		page[i] = (char)('0' + (total + i * 7) % 10);
		sum += (unsigned char)page[i];
	}
	return sum;
}

NOINLINE static void handle_order(void)
{
	unsigned total = 0;
	for (int i = 0; i < 40; i++)
		total += json_parse(body);
	if (check_login(total))
		for (unsigned i = 0; i < 8; i++)
			result += render_receipt(total + i);
}

int main(void)
{
	return serve(handle_order, 40);
}
