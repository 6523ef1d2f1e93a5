// SPDX-License-Identifier: Apache-2.0
//
// Deep and varied stacks: 64 functions call each other in an order that a
// random number chooses, 4 to 40 deep.
static volatile unsigned long sink;
static unsigned long state = 88172645463325252UL;

static unsigned long next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

typedef void fn(int depth);
static fn *const table[64];

#define F(n) \
	__attribute__((noipa)) static void step##n(int depth) \
	{ \
		for (int i = 0; i < 200; i++) \
			sink += (unsigned long)i * n; \
		if (depth > 0) \
			table[next() % 64](depth - 1); \
		sink++; \
	}
#define F8(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
F8(1) F8(2) F8(3) F8(4) F8(5) F8(6) F8(7) F8(8)

#define T8(n) step##n##0, step##n##1, step##n##2, step##n##3, step##n##4, step##n##5, step##n##6, step##n##7
static fn *const table[64] = { T8(1), T8(2), T8(3), T8(4), T8(5), T8(6), T8(7), T8(8) };

int main(void)
{
	for (;;)
		table[next() % 64](4 + (int)(next() % 36));
}
