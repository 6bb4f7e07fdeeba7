#include "gradus/core/emulation/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "gradus/core/emulation/options.h"
#include "gradus/core/emulation/runtime.h"
#include "gradus/core/emulation/sanitizer.h"
#include "gradus/core/emulation/scheduler.h"

namespace gradus::emulation {
namespace {

constexpr std::size_t arena_bytes = std::size_t(1) << 36, page = 4096, device_bytes = std::size_t(16) << 30;

struct Card {
    char* base = nullptr;
    std::size_t top = 0;  ///< addresses are not used twice: what is freed stays out of reach
    std::size_t used = 0;
    std::map<char*, std::size_t> live;  // by the first page
    std::map<char*, char*> first_page;  // of each pointer handed out
    bool open = false;
    std::atomic<bool> touched = false;  ///< some block can be touched
};
Card* cards() {
    static Card* all = new Card[most_devices];
    return all;
}
std::map<char*, std::size_t>& pinned_blocks() {
    static auto* all = new std::map<char*, std::size_t>;
    return *all;
}
std::atomic<int> running_device = -1;

std::size_t round_up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

int read_device_total() {
    const char* text = std::getenv("GRADUS_EMULATED_DEVICES");
    if (!text || !*text) return 0;
    char* end = nullptr;
    const long n = std::strtol(text, &end, 10);
    if (*end != '\0' || n < 0 || n > most_devices) {
        std::fprintf(stderr,
                     "GRADUS_EMULATED_DEVICES: expected a number from 0 to %d: got \"%s\": no card is emulated\n",
                     most_devices, text);
        return 0;
    }
    return int(n);
}

int card_of(const char* p) {
    for (int d = 0; d < device_total(); ++d)
        if (Card& card = cards()[d]; card.base && p >= card.base && p < card.base + arena_bytes) return d;
    return -1;
}

// ---- faults ----

struct sigaction before;
thread_local char fault_text[256];

[[noreturn]] void fault_in_kernel() {
    {
        const std::string report = whereabouts() + ": " + fault_text;
        fail_block(report);
    }
    leave_block();
}

/// Makes the interrupted fiber go on in fault_in_kernel, as if it had called it.
bool redirect(void* context) {
    auto* user = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
    auto& registers = user->uc_mcontext.gregs;
    std::uintptr_t stack = std::uintptr_t(registers[REG_RSP]) - 256;  // below the red zone
    const Fiber* fiber = current_fiber();
    const std::uintptr_t bottom = reinterpret_cast<std::uintptr_t>(fiber->stack);
    if (stack < bottom + 4096 || stack > bottom + stack_bytes) stack = bottom + stack_bytes - 4096;  // it ran over
    registers[REG_RSP] = greg_t((stack & ~std::uintptr_t(15)) - 8);
    registers[REG_RIP] = greg_t(reinterpret_cast<std::uintptr_t>(&fault_in_kernel));
    return true;
#elif defined(__aarch64__)
    user->uc_mcontext.sp = (user->uc_mcontext.sp - 256) & ~std::uint64_t(15);
    user->uc_mcontext.pc = reinterpret_cast<std::uint64_t>(&fault_in_kernel);
    return true;
#else
    return false;
#endif
}

/// Lets the block around an address be touched until the card is closed; false where there is none.
bool open_block(Card& card, const char* address) {
    auto after = card.live.upper_bound(const_cast<char*>(address));
    if (after == card.live.begin()) return false;
    const auto& [first, pages] = *--after;
    if (address >= first + pages) return false;
    card.touched = true;
    return mprotect(first, pages, PROT_READ | PROT_WRITE) == 0;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const char* address = static_cast<const char*>(info->si_addr);
    const int owner = card_of(address);
    if (owner >= 0 && cards()[owner].open && open_block(cards()[owner], address)) return;  // the access is tried again
    if (current_fiber()) {
        const int device = running_device;
        if (owner < 0)
            std::snprintf(fault_text, sizeof fault_text,
                          "access to address %p, which no card has (a wild or host pointer, or more than 64 KiB of "
                          "local variables)",
                          static_cast<const void*>(address));
        else if (owner == device)
            std::snprintf(fault_text, sizeof fault_text,
                          "access to memory of cuda:%d that is not allocated (offset %zu)", owner,
                          std::size_t(address - cards()[owner].base));
        else
            std::snprintf(fault_text, sizeof fault_text, "cuda:%d touched memory of cuda:%d without peer access",
                          device, owner);
        if (redirect(context)) return;
    } else if (owner >= 0) {
        char text[200];
        const int n = std::snprintf(text, sizeof text,
                                    "gradus emulator: the host touched memory of cuda:%d (offset %zu): copy it first\n",
                                    owner, std::size_t(address - cards()[owner].base));
        [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::size_t(n));
    }
    sigaction(signal, &before, nullptr);  // the access is tried again and meets whoever was there before
}

}  // namespace

int device_total() {
    static const int total = read_device_total();
    return total;
}
std::size_t memory_total() { return device_bytes; }
std::size_t memory_free(int device) { return device_bytes - cards()[device].used; }

void* device_allocate(int device, std::size_t bytes) {
    Card& card = cards()[device];
    if (!card.base) {
        void* range = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) return nullptr;
        card.base = static_cast<char*>(range);
        catch_faults();
    }
    // Right before a page nobody may touch, so that the first byte behind it is a fault.
    const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), 256), pages = round_up(size, page);
    if (card.used + pages > device_bytes || card.top + pages + page > arena_bytes) return nullptr;
    char* first = card.base + card.top;
    card.top += pages + page;
    card.used += pages;
    char* pointer = first + pages - size;
    mprotect(first, pages, PROT_READ | PROT_WRITE);
    for (std::size_t i = 0; i < pages / 8; ++i) reinterpret_cast<volatile std::uint64_t*>(first)[i] = ~std::uint64_t(0);
    if (card.open)
        card.touched = true;
    else
        mprotect(first, pages, PROT_NONE);
    card.live[first] = pages;
    card.first_page[pointer] = first;
    return pointer;
}

bool device_free(int device, void* pointer) {
    Card& card = cards()[device];
    const auto found = card.first_page.find(static_cast<char*>(pointer));
    if (found == card.first_page.end()) return false;
    char* first = found->second;
    const std::size_t pages = card.live[first];
    mprotect(first, pages, PROT_NONE);
    madvise(first, pages, MADV_DONTNEED);
    card.used -= pages;
    card.live.erase(first);
    card.first_page.erase(found);
    return true;
}

void* host_allocate(std::size_t bytes) {
    char* p = static_cast<char*>(std::aligned_alloc(page, round_up(std::max<std::size_t>(bytes, 1), page)));
    if (p) pinned_blocks()[p] = bytes;
    return p;
}
bool host_free(void* pointer) {
    if (pinned_blocks().erase(static_cast<char*>(pointer)) == 0) return false;
    std::free(pointer);
    return true;
}

int owner_of(const void* pointer) {
    char* p = const_cast<char*>(static_cast<const char*>(pointer));
    if (const int device = card_of(p); device >= 0) return device;
    auto after = pinned_blocks().upper_bound(p);
    if (after == pinned_blocks().begin()) return pageable;
    --after;
    return p < after->first + after->second ? pinned : pageable;
}

void open_devices(std::uint32_t set, int running) {
    running_device = running;
    if (set != 0) catch_faults();
    if (!options().protect) set = ~0u;
    for (int d = 0; d < device_total(); ++d) {
        Card& card = cards()[d];
        const bool open = set >> d & 1;
        if (card.open == open) continue;
        card.open = open;
        // Opening costs nothing: a block opens when it is touched (see on_fault), so few calls serve many blocks.
        if (open || !card.touched.exchange(false)) continue;
        if (mprotect(card.base, card.top, PROT_NONE) != 0) {
            std::perror("gradus emulator: cannot close the memory of a card");
            std::_Exit(1);  // the host could touch it unseen
        }
    }
}

void use_signal_stack(void*& memory) {
    // AddressSanitizer brings one, and unmaps whichever is there when the thread ends.
    GRADUS_ASAN(stack_t there{}; if (sigaltstack(nullptr, &there) == 0 && !(there.ss_flags & SS_DISABLE)) return;)
    stack_t stack{};
    stack.ss_size = 64 * 1024;
    if (!memory) memory = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_sp = memory;
    sigaltstack(&stack, nullptr);
}

void catch_faults() {
    struct sigaction action {
    }, now{};
    sigaction(SIGSEGV, nullptr, &now);
    if (now.sa_sigaction == on_fault) return;
    before = now;  // a test framework may have put its own in between
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

void mark_used([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
    GRADUS_ASAN(__asan_unpoison_memory_region(memory, bytes);)
}
void mark_unused([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
    GRADUS_ASAN(__asan_poison_memory_region(memory, bytes);)
}

}  // namespace gradus::emulation
