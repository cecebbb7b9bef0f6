#pragma once

namespace ferry::host {

class Accounts;
class Attestor;
class Carrier;
class ControlServer;
class CriuRunner;
class DecisionLog;
class Departed;
class Directory;
class DumpTurns;
class ImageRoom;
class QpNames;
class Residents;
class StandInHost;
class Units;
class Whereabouts;
struct ThisHost;

// What the source's side of a move works with on this host. All of it outlives the moves.
struct SourceSide {
  const ThisHost& host;
  const Units& units;
  ControlServer& control;
  StandInHost& stand_ins;
  DecisionLog& decisions;
  Directory& directory;
  const Departed& departed;
  Residents& residents;
  Whereabouts& whereabouts;
  const ImageRoom& room;
  CriuRunner& criu;
  DumpTurns& dump_turns;
  Accounts& accounts;
  Carrier& carrier;
  Attestor& attestor;
  QpNames& qp_names;
};

}  // namespace ferry::host
