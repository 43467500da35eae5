// Misuses of memory that must not compile; run_nocompile.py says how this file is read.
#include <lumen/memory/arena.h>
#include <lumen/memory/mapping.h>
#include <lumen/memory/request_memory.h>
#include <lumen/memory/shared_buffer.h>

namespace lumen {

// A region has one owner.
void a_region_has_one_owner(Mapping& mapping, Arena& arena, RequestMemory& memory) {
#ifdef WRONG
  const Mapping second = mapping;       // error: deleted
  const Arena copy = arena;             // error: deleted
  const RequestMemory shared = memory;  // error: deleted
#else
  const Mapping second = std::move(mapping);
  const Arena copy = std::move(arena);
  const RequestMemory shared = std::move(memory);
#endif
}
void memory_that_nobody_holds_is_a_mistake(Arena& arena) {
#ifdef WRONG
  arena.allocate(8, 8);  // error: ignoring return
  Arena::create(4096);   // error: ignoring return
#else
  if (arena.allocate(8, 8) == nullptr || !Arena::create(4096).ok()) return;
#endif
}

// A writer is one thread's way in, and comes from its buffer.
void a_writer_has_one_holder(SharedBuffer::Writer& writer) {
#ifdef WRONG
  SharedBuffer::Writer second = writer;  // error: deleted
#else
  SharedBuffer::Writer second = std::move(writer);
#endif
}
void a_writer_comes_from_its_buffer(SharedBuffer& buffer) {
#ifdef WRONG
  SharedBuffer::Writer writer(buffer);  // error: no matching|private
#else
  Result<SharedBuffer::Writer> writer = buffer.writer();
#endif
}
void a_buffer_stays_where_it_is(SharedBuffer& buffer) {
#ifdef WRONG
  const SharedBuffer second = std::move(buffer);  // error: deleted
#else
  buffer.close();
#endif
}

}  // namespace lumen
