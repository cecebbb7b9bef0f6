#pragma once

// The libibverbs that programs would use without us. Calls on contexts that are not ours are passed on to it.
namespace ferry::verbs {

// The definition of `name` after ours in the search order; null when there is none.
void* next_symbol(const char* name, const char* version);
void* next_symbol(const char* name);

}  // namespace ferry::verbs

// FERRY_STOCK(ibv_create_qp, "IBVERBS_1.1")(pd, attributes)
#define FERRY_STOCK(function, version)                                                            \
  ([] {                                                                                           \
    static const auto symbol_ =                                                                   \
        reinterpret_cast<decltype(&::function)>(::ferry::verbs::next_symbol(#function, version)); \
    return symbol_;                                                                               \
  }())

// The libc function that an interposed one stands in front of, in its default version.
#define FERRY_NEXT(function)                                                             \
  ([] {                                                                                  \
    static const auto symbol_ =                                                          \
        reinterpret_cast<decltype(&::function)>(::ferry::verbs::next_symbol(#function)); \
    return symbol_;                                                                      \
  }())
