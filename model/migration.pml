/*
 * The connection-migration protocol (docs/wire.md "Migration"), for spin. model/README.md says how to read and run it.
 *
 * Programs A, B and (with THREE) C have connections; a move takes a program from its place k to its place k + 1, on
 * another host, or is rolled back. Everything that can happen is one branch of the loop in `world` and atomic: a
 * program sends or stops, a ferryd decides, a message arrives, timers fire. Names are those of
 * src/transport/migration (migration.cc, handshake.cc, resumption.cc, stand_in.cc), src/transport/stopped.cc and of
 * src/host/move/machine (move_machine.h, arrival_machine.h); walk_test.py compares one_move() with what the
 * machines of both sides do.
 *
 *   MOVES_A, MOVES_B, MOVES_C    moves of each program at most, rolled back ones counted
 *   DATA_0 … DATA_3              requests that each QP sends
 *   FAULTS                       what the network does in all: each time it loses, holds back or doubles a message, or
 *                                timers run too early, or a second copy of a program speaks
 *   EARLY_TIMERS                 whether running too early is among the faults
 *   MOVES_FAIL                   whether a move may be rolled back
 *   THREE                        A has a second connection, to C
 *   NO_EPOCH, NO_ADDRESS, NO_COMMIT, NO_PROBE, NO_MAC, NO_WAIT, NO_MOVED
 *                                take one guard away: spin then finds an error
 */
#ifndef MOVES_A
#define MOVES_A 1
#endif
#ifndef MOVES_B
#define MOVES_B 0
#endif
#ifndef MOVES_C
#define MOVES_C 0
#endif
#ifndef DATA_0
#define DATA_0 1
#endif
#ifndef DATA_1
#define DATA_1 2
#endif
#ifndef DATA_2
#define DATA_2 1
#endif
#ifndef DATA_3
#define DATA_3 0
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef EARLY_TIMERS
#define EARLY_TIMERS true
#endif
#ifndef MOVES_FAIL
#define MOVES_FAIL true
#endif

/* QPs 0 and 1 are the ends of A's connection to B, 2 and 3 of A's to C. */
#ifdef THREE
#define QPS 4
#define PROGRAMS 3
#else
#define QPS 2
#define PROGRAMS 2
#endif
#define PEER(q) ((q) ^ 1)
#define PROGRAM(q) ((q) == 0 || (q) == 2 -> 0 : ((q) == 1 -> 1 : 2))
#define DATA(q) ((q) == 0 -> DATA_0 : ((q) == 1 -> DATA_1 : ((q) == 2 -> DATA_2 : DATA_3)))
#define MOVES(p) ((p) == 0 -> MOVES_A : ((p) == 1 -> MOVES_B : MOVES_C))

/* A place is an address and a UDP port, whose slot is that of the wire QPN too. */
#define STOPS 3                                /* places of a program: moves at most, and one */
#define PLACE(p, k) (1 + (p) * STOPS + (k))
#define STOP_OF(place) (((place) - 1) % STOPS)
#define ELSEWHERE 15                           /* where a second copy of a program was started */

/* --- messages: numbers, so that those under way can be kept in order */
#define REQUEST 1      /* psn: its PSN */
#define ACK 2          /* psn: everything before it has arrived */
#define HELLO 3        /* with a valid echo: the probe of a Paused QP */
#define PAUSE 4        /* epoch */
#define NAK_STOPPED 5  /* epoch */
#define RESUME 6       /* epoch, psn: first unacknowledged, expected */
#define RESUME_ACK 7   /* epoch that is acknowledged, psn, expected */
#define MOVED 8        /* epoch, location */
#define MESSAGE(type, q, from, to, epoch, psn, expected, location) \
  ((type) | (q) << 4 | (from) << 6 | (to) << 10 | (epoch) << 14 | (psn) << 18 | (expected) << 21 | (location) << 24)
#define TYPE(m) ((m) & 15)
#define QP_OF(m) ((m) >> 4 & 3)                /* that it is for */
#define FROM(m) ((m) >> 6 & 15)
#define TO(m) ((m) >> 10 & 15)
#define EPOCH(m) ((m) >> 14 & 15)
#define PSN(m) ((m) >> 18 & 7)
#define EXPECTED(m) ((m) >> 21 & 7)
#define LOCATION(m) ((m) >> 24 & 15)

/* The network: messages under way, in no order (kept sorted, so that equal networks are equal states), and messages
   that it holds back or has doubled: these may arrive at any time or never. */
#define UNDER_WAY 12
#define HELD_BACK 3
int under_way[UNDER_WAY];
int held_back[HELD_BACK];
byte faults;

/* --- QPs (QpAttributes, Epochs, Flight) */
typedef Qp {
  unsigned una : 3;             /* first unacknowledged PSN */
  unsigned max_sent : 3;        /* one after the last PSN sent */
  unsigned expected : 3;        /* ePSN */
  unsigned epoch : 4;
  unsigned peer_epoch : 4;
  unsigned peer : 4;            /* where it is, as far as known */
  bit peer_resumed;
  bit stopped;
  bit paused;
  bit resume_pending;
  bit located;
  bit fell_silent;              /* RESUME is not repeated any more: the Paused limit has passed */
};
Qp qp[QPS];
#define SILENT(q) (qp[q].stopped || qp[q].paused || qp[q].resume_pending)

/* --- the stand-in's entry for a QP at a place that its program has left or is leaving (StandIn::State::Entry) */
#define NONE 0
#define BEFORE_COMMIT 1
#define COMMITTED 2
typedef Entry {
  unsigned state : 2;
  unsigned epoch : 4;
  unsigned peer_epoch : 4;
  unsigned peer : 4;
  bit peer_resumed;
};
Entry entry[QPS * STOPS];
#define ENTRY(q, k) entry[(q) * STOPS + (k)]

/* --- programs and their moves (Move at the source, Arrival at the destination) */
#define NO_RECORD 0
#define COMMIT_RECORD 1
#define ABORT_RECORD 2
#define IS_ABSENT 0
#define IS_HELD 1               /* restored, frozen and silent */
#define IS_LIVE 2
#define IS_GONE 3
typedef Program {
  unsigned k : 2;               /* its place */
  unsigned moves_left : 2;
  bit moving;
  bit source_live;              /* the copy at place k */
  unsigned destination : 2;     /* the copy at place k + 1 */
  unsigned source_record : 2;   /* durable: a ferryd that restarts goes on from them */
  unsigned destination_record : 2;
};
Program program[PROGRAMS];
#define HERE(p) (program[p].destination == IS_LIVE -> PLACE(p, program[p].k + 1) : PLACE(p, program[p].k))

byte rounds;                    /* of timers since anything else could happen */
#define ROUNDS 12

/* Of the step at hand; 0 between steps. */
int m;                          /* the message that arrives */
byte i, q, p, at;
hidden byte forged, news, possible;
hidden int out, swapped;

/* --- the network */
/* Sends `out`. */
inline send() {
  printf("sent %d\n", out);
  i = 0;
  do
  :: i < UNDER_WAY && under_way[i] > out -> i++
  :: else -> break
  od;
  assert(i < UNDER_WAY);
  if
  :: under_way[i] == out       /* the same twice is what doubling is for */
  :: else ->
    do
    :: out != 0 ->
      assert(i < UNDER_WAY);
      swapped = under_way[i];
      under_way[i] = out;
      out = swapped;
      i++
    :: else -> break
    od
  fi
}

inline take_off(index) {
  i = index;
  do
  :: i < UNDER_WAY - 1 -> under_way[i] = under_way[i + 1]; i++
  :: else -> break
  od;
  under_way[UNDER_WAY - 1] = 0
}

inline hold_back(message) {
  i = 0;
  do
  :: i < HELD_BACK && held_back[i] > message -> i++
  :: else -> break
  od;
  if
  :: i < HELD_BACK ->
    out = message;
    do
    :: i < HELD_BACK && out != 0 ->
      swapped = held_back[i];
      held_back[i] = out;
      out = swapped;
      i++
    :: else -> break
    od
  :: else
  fi
}

/* --- what a QP sends (transmit_migration) */
inline send_resume(q_) {
  out = MESSAGE(RESUME, PEER(q_), HERE(PROGRAM(q_)), qp[q_].peer, qp[q_].epoch, qp[q_].una, qp[q_].expected, 0);
  send()
}
inline send_resume_ack(q_) {
  out = MESSAGE(RESUME_ACK, PEER(q_), HERE(PROGRAM(q_)), qp[q_].peer, qp[q_].peer_epoch, qp[q_].una, qp[q_].expected,
                0);
  send()
}
inline send_hello(q_) {
  out = MESSAGE(HELLO, PEER(q_), HERE(PROGRAM(q_)), qp[q_].peer, 0, 0, 0, 0);
  send()
}
inline send_request(q_, psn_) {
  out = MESSAGE(REQUEST, PEER(q_), HERE(PROGRAM(q_)), qp[q_].peer, 0, psn_, 0, 0);
  send()
}
inline send_ack(q_) {
  if
  :: SILENT(q_)                /* the peer asks again */
  :: else ->
    out = MESSAGE(ACK, PEER(q_), HERE(PROGRAM(q_)), qp[q_].peer, 0, qp[q_].expected, 0, 0);
    send()
  fi
}

/* --- what a QP receives */
#ifdef NO_ADDRESS
#define SAME_PLACE(from_, place_) true
#else
#define SAME_PLACE(from_, place_) ((from_) == (place_))
#endif
#define FROM_PEER(q_, from_) SAME_PLACE(from_, qp[q_].peer)
#ifdef NO_EPOCH
#define NOT_OLD(epoch_, peer_epoch_) true
#else
#define NOT_OLD(epoch_, peer_epoch_) ((epoch_) >= (peer_epoch_))
#endif
#ifdef NO_MAC
#define AUTHENTIC true
#else
#define AUTHENTIC (!forged)
#endif

/* is_current(): not of an earlier stop, and not a second restart of the same image elsewhere. */
inline is_current(epoch_, from_, peer_epoch_, peer_resumed_, peer_) {
  if
  :: epoch_ != peer_epoch_ || !peer_resumed_ -> possible = NOT_OLD(epoch_, peer_epoch_)
  :: else -> possible = SAME_PLACE(from_, peer_)
  fi
}

inline psns_possible(q_) {
  possible = EXPECTED(m) >= qp[q_].una && EXPECTED(m) <= qp[q_].max_sent && PSN(m) <= qp[q_].expected
}

inline acknowledge(q_, end) {
  if
  :: end > qp[q_].una && end <= qp[q_].max_sent -> qp[q_].una = end
  :: else
  fi;
  /* Nothing completes that has not arrived. */
  assert(qp[q_].una <= qp[PEER(q_)].expected)
}

inline handle_request(q_) {
  if
  :: !FROM_PEER(q_, FROM(m))
  :: else ->
    if
    :: qp[q_].resume_pending -> send_resume(q_)
    :: else
    fi;
    if
    :: PSN(m) == qp[q_].expected ->
      /* What a second copy of the peer says is never taken for the peer's word. */
      assert(FROM(m) != ELSEWHERE);
      qp[q_].expected++;
      /* Nothing arrives that was not sent, so nothing arrives twice. */
      assert(qp[q_].expected <= qp[PEER(q_)].max_sent);
      send_ack(q_)
    :: PSN(m) < qp[q_].expected -> send_ack(q_)
    :: else                    /* behind a gap */
    fi
  fi
}

/* PAUSE, NAK_STOPPED, MOVED. */
inline handle_peer_stop(q_) {
  news = (EPOCH(m) != qp[q_].peer_epoch);
  possible = NOT_OLD(EPOCH(m), qp[q_].peer_epoch) && (news || !qp[q_].peer_resumed);
  if
  :: AUTHENTIC && possible ->
    if
    :: news ->
      qp[q_].peer_epoch = EPOCH(m);
      qp[q_].peer_resumed = 0;
      qp[q_].paused = 1
    :: else
    fi;
    if
    :: TYPE(m) == MOVED && LOCATION(m) != qp[q_].peer ->
      qp[q_].peer = LOCATION(m);
      qp[q_].located = 1;
#ifndef NO_PROBE
      send_hello(q_);
#endif
      if
      :: qp[q_].resume_pending -> qp[q_].fell_silent = 0; send_resume(q_)
      :: else
      fi
    :: else
    fi
  :: else
  fi
}

inline handle_resume(q_) {
  is_current(EPOCH(m), FROM(m), qp[q_].peer_epoch, qp[q_].peer_resumed, qp[q_].peer);
  if
  :: !AUTHENTIC || !possible
  :: AUTHENTIC && possible && EPOCH(m) == qp[q_].peer_epoch && qp[q_].peer_resumed -> send_resume_ack(q_)
  :: AUTHENTIC && possible && !(EPOCH(m) == qp[q_].peer_epoch && qp[q_].peer_resumed) ->
    psns_possible(q_);
    if
    :: possible ->
      /* Of two copies of a program, its peers know one. */
      assert(FROM(m) != ELSEWHERE);
      qp[q_].peer_epoch = EPOCH(m);
      qp[q_].peer_resumed = 1;
      qp[q_].paused = 0;
      qp[q_].peer = FROM(m);
      qp[q_].located = 1;
      if
      :: qp[q_].resume_pending -> send_resume(q_)
      :: else
      fi;
      acknowledge(q_, EXPECTED(m));
      send_resume_ack(q_)
    :: else
    fi
  fi
}

inline handle_resume_ack(q_) {
  psns_possible(q_);
  if
  :: AUTHENTIC && possible && qp[q_].resume_pending && EPOCH(m) == qp[q_].epoch ->
    if
    :: !qp[q_].located -> qp[q_].peer = FROM(m)
    :: else
    fi;
    qp[q_].resume_pending = 0;
    qp[q_].fell_silent = 0;
    acknowledge(q_, EXPECTED(m))
  :: else
  fi
}

inline handle_packet(q_) {
  if
  :: TYPE(m) == REQUEST -> handle_request(q_)
  :: TYPE(m) == ACK ->
    if
    :: FROM_PEER(q_, FROM(m)) -> acknowledge(q_, PSN(m))
    :: else
    fi
  :: TYPE(m) == HELLO ->
    if
    :: FROM_PEER(q_, FROM(m)) && qp[q_].resume_pending -> send_resume(q_)  /* it has not heard us */
    :: else
    fi
  :: TYPE(m) == RESUME -> handle_resume(q_)
  :: TYPE(m) == RESUME_ACK -> handle_resume_ack(q_)
  :: TYPE(m) == PAUSE || TYPE(m) == NAK_STOPPED || TYPE(m) == MOVED -> handle_peer_stop(q_)
  fi
}

/* --- what a stand-in receives (StandIn::State::handle, answer_of) */
inline stand_in_answers(q_, k_) {
  if
  :: ENTRY(q_, k_).state == BEFORE_COMMIT ->
    out = MESSAGE(NAK_STOPPED, PEER(q_), TO(m), ENTRY(q_, k_).peer, ENTRY(q_, k_).epoch, 0, 0, 0);
    send()
  :: else ->
#ifndef NO_MOVED
    out = MESSAGE(MOVED, PEER(q_), TO(m), ENTRY(q_, k_).peer, ENTRY(q_, k_).epoch, 0, 0, TO(m) + 1);
    send()
#else
    skip
#endif
  fi
}
inline stand_in(q_, k_) {
  if
  :: TYPE(m) == RESUME ->
    is_current(EPOCH(m), FROM(m), ENTRY(q_, k_).peer_epoch, ENTRY(q_, k_).peer_resumed, ENTRY(q_, k_).peer);
    if
    :: AUTHENTIC && possible ->
      assert(FROM(m) != ELSEWHERE);
      ENTRY(q_, k_).peer = FROM(m);
      ENTRY(q_, k_).peer_epoch = EPOCH(m);
      ENTRY(q_, k_).peer_resumed = 1;
      if
      :: ENTRY(q_, k_).state == COMMITTED -> stand_in_answers(q_, k_)
      :: else                  /* it is sent again */
      fi
    :: else
    fi
  :: (TYPE(m) == REQUEST || TYPE(m) == HELLO) && SAME_PLACE(FROM(m), ENTRY(q_, k_).peer) ->
    stand_in_answers(q_, k_)
  :: else
  fi
}

/* --- a message arrives: at a process, at a stand-in, or nowhere */
inline arrive() {
  q = QP_OF(m);
  p = PROGRAM(q);
  printf("arrives %d\n", m);
  if
  :: TO(m) == HERE(p) && !qp[q].stopped -> handle_packet(q)
  :: !(TO(m) == HERE(p) && !qp[q].stopped) && TO(m) != 0 && TO(m) != ELSEWHERE &&
     ENTRY(q, STOP_OF(TO(m))).state != NONE ->
    at = STOP_OF(TO(m));
    stand_in(q, at)
  :: else
  fi
}

/* --- stop, resume */
inline stop_qp(q_) {
  qp[q_].stopped = 1;
  qp[q_].epoch++;
  qp[q_].resume_pending = 0;
  qp[q_].fell_silent = 0;
  ENTRY(q_, program[p].k).state = BEFORE_COMMIT;
  ENTRY(q_, program[p].k).epoch = qp[q_].epoch;
  ENTRY(q_, program[p].k).peer_epoch = qp[q_].peer_epoch;
  ENTRY(q_, program[p].k).peer = qp[q_].peer;
  ENTRY(q_, program[p].k).peer_resumed = qp[q_].peer_resumed;
  out = MESSAGE(PAUSE, PEER(q_), PLACE(p, program[p].k), qp[q_].peer, qp[q_].epoch, 0, 0, 0);
  send()
}
inline resume_qp(q_, rollback) {
  qp[q_].stopped = 0;
  if
  :: rollback ->
    qp[q_].epoch++;
    clear_entry(q_, program[p].k)
  :: else
  fi;
  qp[q_].resume_pending = 1;
  qp[q_].located = 0;
  send_resume(q_)
}
inline clear_entry(q_, k_) {
  ENTRY(q_, k_).state = NONE;
  ENTRY(q_, k_).epoch = 0;
  ENTRY(q_, k_).peer_epoch = 0;
  ENTRY(q_, k_).peer = 0;
  ENTRY(q_, k_).peer_resumed = 0
}
inline one_live_copy() {
  assert(!(program[p].source_live && program[p].destination == IS_LIVE))
}
/* Does `action` to every QP of program p. */
#ifdef THREE
#define EACH_QP_OF_P(action) \
  if :: p == 0 -> action(0); action(2) :: p == 1 -> action(1) :: p == 2 -> action(3) fi
#else
#define EACH_QP_OF_P(action) if :: p == 0 -> action(0) :: p == 1 -> action(1) fi
#endif
inline go_on_here(q_) { resume_qp(q_, 1) }
inline go_on_there(q_) { resume_qp(q_, 0) }
inline entry_committed(q_) { ENTRY(q_, program[p].k).state = COMMITTED }

inline end_of_move() {
  program[p].moving = 0;
  program[p].source_record = NO_RECORD;
  program[p].destination_record = NO_RECORD;
  program[p].destination = IS_ABSENT;
  rounds = 0
}
inline roll_back() {
  printf("program %d goes on at its source\n", p);
  program[p].source_record = ABORT_RECORD;
  program[p].source_live = 1;
  one_live_copy();
  EACH_QP_OF_P(go_on_here)
}

/* Stopped at the source, not going on at the destination. */
#define FROZEN (program[p].moving && !program[p].source_live && program[p].destination != IS_LIVE)
#ifdef NO_COMMIT
#define MAY_RESUME (program[p].destination == IS_HELD)
#else
#define MAY_RESUME (program[p].destination == IS_HELD && program[p].destination_record == COMMIT_RECORD)
#endif
inline one_move() {
  if
  :: d_step {                                  /* stop */
    !program[p].moving ->
    printf("program %d stops\n", p);
    program[p].moves_left--;
    program[p].moving = 1;
    program[p].source_live = 0;
    program[p].destination = IS_HELD;          /* restored, soon: what fails until then fails at the destination */
    EACH_QP_OF_P(stop_qp)
  }
  :: d_step {                                  /* anything fails at the source */
    MOVES_FAIL && FROZEN && program[p].source_record == NO_RECORD ->
    roll_back()
  }
  :: d_step {                                  /* the source promises: it was held there, the last it has heard */
    FROZEN && program[p].source_record == NO_RECORD ->
    program[p].source_record = COMMIT_RECORD;
    printf("program %d: committed at the source\n", p)
  }
  :: d_step {                                  /* ArrivalGroup::commit */
    program[p].source_record == COMMIT_RECORD && program[p].destination == IS_HELD &&
    program[p].destination_record == NO_RECORD ->
    program[p].destination_record = COMMIT_RECORD;
    printf("program %d: committed at the destination\n", p)
  }
  :: d_step {                                  /* anything fails at the destination */
    MOVES_FAIL && program[p].destination == IS_HELD && program[p].destination_record == NO_RECORD ->
    program[p].destination_record = ABORT_RECORD;
    program[p].destination = IS_GONE
  }
  :: d_step {                                  /* it refuses */
    FROZEN && program[p].source_record == COMMIT_RECORD && program[p].destination_record == ABORT_RECORD ->
    roll_back()
  }
  :: d_step {                                  /* resume */
    MAY_RESUME ->
    printf("program %d goes on at its destination\n", p);
    program[p].destination = IS_LIVE;
    one_live_copy();
    EACH_QP_OF_P(go_on_there)
  }
  :: d_step {                                  /* the answer to Commit comes */
    program[p].source_record == COMMIT_RECORD && program[p].destination == IS_LIVE ->
    printf("program %d: the source knows\n", p);
    EACH_QP_OF_P(entry_committed);
    program[p].k++;
    program[p].source_live = 1;
    end_of_move()
  }
  :: d_step {                                  /* rolled back, and the destination gives up too */
    program[p].moving && program[p].source_live ->
    end_of_move()
  }
  fi
}
/* Whether one_move() can do anything. */
#define CAN_MOVE(p_) (program[p_].moving || program[p_].moves_left > 0)
#ifdef THREE
#define ALL_SETTLED (!program[0].moving && !program[1].moving && !program[2].moving)
#else
#define ALL_SETTLED (!program[0].moving && !program[1].moving)
#endif

/* --- timers: ACK timeout, probe, repetition of RESUME */
inline timers_of(q_) {
  if
  :: !qp[q_].stopped && qp[q_].resume_pending && !qp[q_].fell_silent -> send_resume(q_)
  :: else
  fi;
#ifndef NO_PROBE
  if
  :: !qp[q_].stopped && qp[q_].paused -> send_hello(q_)
  :: else
  fi;
#endif
  if
  :: !SILENT(q_) ->
    if
    :: ALL_SETTLED && qp[q_].max_sent < DATA(q_) -> qp[q_].max_sent = DATA(q_)  /* in the end, all is posted */
    :: else
    fi;
    at = qp[q_].una;
    do
    :: at < qp[q_].max_sent -> send_request(q_, at); at++
    :: else -> break
    od
  :: else
  fi
}
inline timers() {
  printf("timers\n");
  timers_of(0);
  timers_of(1);
#ifdef THREE
  timers_of(2);
  timers_of(3)
#else
  skip
#endif
}
#define DONE(q_) (!qp[q_].stopped && !qp[q_].paused && qp[q_].una == DATA(q_) && \
                  (!qp[q_].resume_pending || qp[q_].fell_silent))
#ifdef THREE
#define ALL_DONE (ALL_SETTLED && DONE(0) && DONE(1) && DONE(2) && DONE(3))
#else
#define ALL_DONE (ALL_SETTLED && DONE(0) && DONE(1))
#endif

/* --- what a second copy of the peer of QP q says: started from its image once the first copy, or the program after a
   rollback, was heard. It knows all keys, and the PSNs fit. */
#define IMAGE_IS_OLD(q_) (qp[q_].peer_resumed && qp[q_].peer_epoch > 0)
#define COPY_SAYS(type, epoch_) \
  MESSAGE(type, q, ELSEWHERE, HERE(PROGRAM(q)), epoch_, qp[q].expected, qp[q].una, 0)

inline set_up() {
  p = 0;
  do
  :: p < PROGRAMS ->
    program[p].source_live = 1;
    program[p].moves_left = MOVES(p);
    p++
  :: else -> break
  od;
  q = 0;
  do
  :: q < QPS ->
    qp[q].peer = PLACE(PROGRAM(PEER(q)), 0);
    qp[q].peer_resumed = 1;
    q++
  :: else -> break
  od;
  faults = FAULTS
}

/* Picks a QP, or a program, for which `guard` holds. */
#ifdef THREE
#define PICK_QP(guard) if :: guard(0) -> q = 0 :: guard(1) -> q = 1 :: guard(2) -> q = 2 :: guard(3) -> q = 3 fi
#define PICK_PROGRAM(guard) if :: guard(0) -> p = 0 :: guard(1) -> p = 1 :: guard(2) -> p = 2 fi
#else
#define PICK_QP(guard) if :: guard(0) -> q = 0 :: guard(1) -> q = 1 fi
#define PICK_PROGRAM(guard) if :: guard(0) -> p = 0 :: guard(1) -> p = 1 fi
#endif
#define CAN_SEND(q_) (!SILENT(q_) && qp[q_].max_sent < DATA(q_))
#ifdef NO_WAIT
#define PEER_KNOWS(q_) true
#else
#define PEER_KNOWS(q_) (!qp[q_].stopped && !qp[q_].resume_pending)
#endif
/* Nor is it kept when the program has moved on from the place that it names (Move::watch). */
#define ENTRY_ENDS(q_, k_) \
  (ENTRY(q_, k_).state == COMMITTED && k_ < program[PROGRAM(q_)].k && \
   (PEER_KNOWS(q_) || k_ + 1 < program[PROGRAM(q_)].k))
#define SOME_ENTRY_ENDS(q_) (ENTRY_ENDS(q_, 0) || ENTRY_ENDS(q_, 1))
#define CAN_FALL_SILENT(q_) \
  (qp[q_].resume_pending && !qp[q_].stopped && !qp[q_].fell_silent && qp[q_].una == DATA(q_) && \
   !qp[q_].paused && !qp[PEER(q_)].paused && under_way[0] == 0 && held_back[0] == 0)
#define COPY_CAN_SPEAK(q_) (IMAGE_IS_OLD(q_) && faults > 0)
#define IS_RUNNING(q_) (!qp[q_].stopped)
#define CLEAR m = 0; q = 0; p = 0; at = 0; i = 0; out = 0; swapped = 0; news = 0; possible = 0

active proctype world() {
  d_step { set_up(); CLEAR };
  do
  /* A message arrives, whichever; or not. */
  :: atomic {
    under_way[0] != 0 ->
    do
    :: i < UNDER_WAY - 1 && under_way[i + 1] != 0 -> i++
    :: break
    od;
    if
    :: d_step { m = under_way[i]; take_off(i); arrive(); CLEAR }
    :: d_step { faults > 0 -> faults--; rounds = 0; printf("lost %d\n", under_way[i]); take_off(i); CLEAR }
    :: d_step {
         faults > 0 -> faults--; rounds = 0; m = under_way[i]; printf("late %d\n", m); take_off(i); hold_back(m); CLEAR
       }
    :: d_step { faults > 0 -> faults--; rounds = 0; m = under_way[i]; printf("doubled %d\n", m); hold_back(m); CLEAR }
    fi
  }
  /* A late message arrives. */
  :: atomic {
    held_back[0] != 0 ->
    do
    :: i < HELD_BACK - 1 && held_back[i + 1] != 0 -> i++
    :: break
    od;
    d_step {
      m = held_back[i];
      do
      :: i < HELD_BACK - 1 -> held_back[i] = held_back[i + 1]; i++
      :: else -> break
      od;
      held_back[HELD_BACK - 1] = 0;
      rounds = 0;
      arrive();
      CLEAR
    }
  }
  /* A program sends. */
  :: atomic {
    PICK_QP(CAN_SEND);
    d_step {
      qp[q].max_sent++;
      send_request(q, qp[q].max_sent - 1);
      CLEAR
    }
  }
  /* A move goes on. */
  :: atomic {
    PICK_PROGRAM(CAN_MOVE);
    one_move();
    d_step { CLEAR }
  }
  /* A stand-in's entry ends: the peer has acknowledged RESUME, and the Paused limit has passed. */
  :: atomic {
    PICK_QP(SOME_ENTRY_ENDS);
    if
    :: ENTRY_ENDS(q, 0) -> at = 0
    :: ENTRY_ENDS(q, 1) -> at = 1
    fi;
    d_step { printf("the entry of QP %d at %d ends\n", q, PLACE(PROGRAM(q), at)); clear_entry(q, at); CLEAR }
  }
  /* A QP with nothing to send falls silent: nobody has acknowledged its RESUME until the Paused limit. Neither
     end is Paused, else its own limit would be over as well; and no message is that old. */
  :: atomic {
    PICK_QP(CAN_FALL_SILENT);
    d_step { printf("QP %d falls silent\n", q); qp[q].fell_silent = 1; rounds = 0; CLEAR }
  }
  /* Timers, when nothing is under way. */
  :: d_step {
    under_way[0] == 0 && !ALL_DONE ->
    /* Nothing waits for ever: when nothing else happens, this many rounds settle everything. */
    assert(rounds < ROUNDS);
    if
    :: ALL_SETTLED -> rounds++
    :: else
    fi;
    timers();
    CLEAR
  }
  /* Timers, too early. */
  :: d_step {
    EARLY_TIMERS && under_way[0] != 0 && faults > 0 ->
    faults--;
    rounds = 0;
    timers();
    CLEAR
  }
  /* A second copy of a program says something. */
  :: atomic {
    PICK_QP(COPY_CAN_SPEAK);
    if
    :: m = COPY_SAYS(RESUME, qp[q].peer_epoch)
    :: m = COPY_SAYS(RESUME, qp[q].peer_epoch - 1)
    :: m = COPY_SAYS(REQUEST, 0)
    fi;
    d_step { faults--; rounds = 0; arrive(); CLEAR }
  }
  /* Somebody who has no key says something. */
  :: atomic {
    PICK_QP(IS_RUNNING);
    if
    :: m = COPY_SAYS(PAUSE, qp[q].peer_epoch + 1)
    :: m = COPY_SAYS(RESUME, qp[q].peer_epoch + 1)
    fi;
    d_step { forged = 1; arrive(); forged = 0; CLEAR }
  }
  :: d_step { under_way[0] == 0 && held_back[0] == 0 && ALL_DONE -> rounds = 0 } -> break
  od
}
