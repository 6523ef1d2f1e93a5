// SPDX-License-Identifier: Apache-2.0
//
// The demo's image service: it makes small pictures of large ones, for 90 % of
// one CPU. The pictures are noise, the arithmetic is not.
#include "serve.h"

enum { WIDE = 512, HIGH = 384, SMALL_WIDE = 128, SMALL_HIGH = 96, BLOCK = 8 };

static unsigned char image[HIGH][WIDE];
static unsigned char small[SMALL_HIGH][SMALL_WIDE];
static volatile int result;

NOINLINE static void decode_image(unsigned seed)
{
	KEEP_FRAME;
	for (int y = 0; y < HIGH; y += 4)
		for (int x = 0; x < WIDE; x++) {
			seed = seed * 1664525u + 1013904223u;
			image[y][x] = (unsigned char)(seed >> 24);
		}
}

NOINLINE static void resize_row(int y)
{
	KEEP_FRAME;
	for (int x = 0; x < SMALL_WIDE; x++) {
		unsigned sum = 0;
		for (int dy = 0; dy < 4; dy++)
			for (int dx = 0; dx < 4; dx++)
				sum += image[y * 4 + dy][x * 4 + dx] * (unsigned)(4 - dy) * (unsigned)(4 - dx);
		small[y][x] = (unsigned char)(sum / 100);
	}
}

NOINLINE static void resize_image(void)
{
	KEEP_FRAME;
	for (int y = 0; y < SMALL_HIGH; y++)
		resize_row(y);
}

NOINLINE static int dct_block(int by, int bx)
{
	KEEP_FRAME;
	static const int weight[BLOCK] = { 64, 89, 84, 75, 64, 50, 35, 18 };
	int energy = 0;
	for (int v = 0; v < BLOCK; v++)
		for (int u = 0; u < BLOCK; u++) {
			int sum = 0;
			for (int y = 0; y < BLOCK; y++)
				for (int x = 0; x < BLOCK; x++)
					sum += small[by + y][bx + x] * weight[(x * u + y) & 7] * weight[(y * v + x) & 7];
			energy += sum >> 16;
		}
	return energy;
}

NOINLINE static int jpeg_encode(void)
{
	KEEP_FRAME;
	int energy = 0;
	for (int y = 0; y < SMALL_HIGH; y += BLOCK)
		for (int x = 0; x < SMALL_WIDE; x += BLOCK)
			energy += dct_block(y, x);
	return energy;
}

NOINLINE static void make_thumbnail(void)
{
	static unsigned seed;
	decode_image(seed++);
	for (int i = 0; i < 6; i++)
		resize_image();
	result += jpeg_encode();
}

int main(void)
{
	return serve(make_thumbnail, 90);
}
