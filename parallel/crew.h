// The threads of a group of replicas, one a rank, for as long as the group lives.
#pragma once

#include <exception>
#include <functional>
#include <memory>

namespace gradus::parallel {

class Crew {
  public:
    explicit Crew(int ranks);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    int size() const;

    /// work(rank) in every thread, with the caller's thread state; returns when all are done. What one throws is passed
    /// to failed(rank, error) in that thread, so that the others can be woken; then the first error that is not of the
    /// group itself is thrown here.
    void run(const std::function<void(int rank)>& work,
             const std::function<void(int rank, const std::exception& error)>& failed = {});

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace gradus::parallel
