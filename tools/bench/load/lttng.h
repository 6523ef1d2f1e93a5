/* SPDX-License-Identifier: Apache-2.0 */

/* The event of ring.c, for LTTng-UST, which includes this file several times. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER gantry_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng.h"

#if !defined(GANTRY_BENCH_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define GANTRY_BENCH_LTTNG_H

#include <stdint.h>
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(gantry_bench, request,
	LTTNG_UST_TP_ARGS(uint32_t, id, uint64_t, from, uint64_t, to),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, id, id)
		lttng_ust_field_integer(uint64_t, from, from)
		lttng_ust_field_integer(uint64_t, to, to)))

#endif

#include <lttng/tracepoint-event.h>
