#include "gradus/core/emulation/async_copy.h"

#include "gradus/core/emulation/options.h"
#include "gradus/core/emulation/scheduler.h"

namespace gradus::emulation {
namespace {

void arrive(const PendingCopy& copy) {
    copy_bytes(copy.target, copy.source, std::size_t(copy.filled));
    for (int i = copy.filled; i < copy.bytes; ++i) static_cast<volatile char*>(copy.target)[i] = 0;
}

}  // namespace

void copy_async(void* shared, const void* global, int bytes, int filled) {
    Fiber& fiber = *current_fiber();
    const auto low = unsigned(bytes - 1);
    if ((reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global)) & low)
        trap("an asynchronous copy is not aligned to its size", fiber.place);
    if (!fiber.group_open) {
        if (fiber.group_count == 8) trap("more than eight groups of asynchronous copies are under way", fiber.place);
        fiber.groups[fiber.group_count++].count = 0;
        fiber.group_open = true;
    }
    const PendingCopy copy{shared, global, bytes, filled};
    const Options::Copies when = options().copies;
    if (when == Options::Copies::eager || (when == Options::Copies::random && random_below(2))) return arrive(copy);
    CopyGroup& group = fiber.groups[fiber.group_count - 1];
    if (group.count == 64) trap("more than 64 asynchronous copies in a group", fiber.place);
    group.copies[group.count++] = copy;
}

void copy_async_commit() {
    Fiber& fiber = *current_fiber();
    if (!fiber.group_open) {
        if (fiber.group_count == 8) trap("more than eight groups of asynchronous copies are under way", fiber.place);
        fiber.groups[fiber.group_count++].count = 0;
    }
    fiber.group_open = false;
}

void copy_async_wait(int pending, const char* file, int line) {
    if (skipped("copy-wait", file, line)) return;
    Fiber& fiber = *current_fiber();
    const int done = fiber.group_count - pending;
    if (done <= 0) return;
    for (int g = 0; g < done; ++g)
        for (int i = 0; i < fiber.groups[g].count; ++i) arrive(fiber.groups[g].copies[i]);
    for (int g = done; g < fiber.group_count; ++g) {
        CopyGroup& to = fiber.groups[g - done];
        to.count = fiber.groups[g].count;
        for (int i = 0; i < to.count; ++i) to.copies[i] = fiber.groups[g].copies[i];
    }
    fiber.group_count -= done;
}

}  // namespace gradus::emulation
