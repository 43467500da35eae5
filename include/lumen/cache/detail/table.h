// Table, whole: its class and its functions, by what they do.
// Threads, Memory, Errors: see table_class.h.
#pragma once

#include <lumen/cache/detail/table_class.h>
#include <lumen/cache/detail/table_growth.h>
#include <lumen/cache/detail/table_reads.h>
#include <lumen/cache/detail/table_writes.h>
