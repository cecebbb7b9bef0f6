#pragma once

#include <chrono>
#include <list>
#include <mutex>
#include <string>
#include <vector>

// What the ferryds of both hosts do during a move, and when.
namespace ferry::host {

// Of one program, on one host. May be used from any thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  struct Span {
    std::string lane;  // who does it: spans of one lane are nested, or do not overlap
    std::string name;
    Clock::time_point begin, end;
  };

  // Something that ends with this object.
  class Step {
   public:
    ~Step();
    Step(const Step&) = delete;

   private:
    friend class Timeline;
    Step(Timeline& timeline, std::list<Span>::iterator span) : timeline_(timeline), span_(span) {}

    Timeline& timeline_;
    const std::list<Span>::iterator span_;
  };

  [[nodiscard]] Step step(std::string lane, std::string name);
  // Something that has ended.
  void add(Span span);
  // All so far. What has not ended yet ends now.
  std::vector<Span> spans() const;

 private:
  mutable std::mutex mutex_;
  std::list<Span> spans_;
};

// The names of lanes that both hosts have.
inline constexpr char kCallLane[] = "calls between ferryds";
inline constexpr char kFerrydLane[] = "ferryd";
inline constexpr char kCriuLane[] = "CRIU";
inline constexpr char kScriptLane[] = "CRIU's plugin and scripts";
inline constexpr char kLogLane[] = "CRIU's log";
// The call of which each host has a span: their middles are the same moment, by whatever clock.
inline constexpr char kRestoreCall[] = "Restore";

}  // namespace ferry::host
