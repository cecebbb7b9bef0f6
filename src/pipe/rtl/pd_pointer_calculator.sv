// Pointer Calculator: from the pointers of a queue, how many entries may be fetched and where they are, and where the
// next completion goes; a cycle later. An entry is fetched only if there is a place for its completion.
module pd_pointer_calculator #(
  parameter QUEUES = 16,
  parameter DEPTH  = 1024,
  localparam QW = $clog2(QUEUES),
  localparam PW = $clog2(DEPTH) + 1
) (
  input  logic          clk,
  input  logic [63:0]   sq_base,
  input  logic [63:0]   cq_base,
  input  logic          sq_enable,  // else the last answer stays
  input  logic [QW-1:0] sq_queue,
  input  logic [PW-1:0] sq_head,
  input  logic [PW-1:0] sq_tail,
  input  logic [PW-1:0] cq_head,
  output logic [63:0]   sq_address,
  output logic [4:0]    sq_count,  // up to 16: 512 bytes, and not beyond a multiple of that
  input  logic [QW-1:0] cq_queue,
  input  logic [PW-2:0] cq_place,
  output logic [63:0]   cq_address
);
  logic [PW-1:0] submitted, room, least;
  logic [4:0] to_boundary;

  assign submitted   = sq_tail - sq_head;
  assign room        = {1'b1, {PW-1{1'b0}}} - (sq_head - cq_head);
  assign least       = submitted < room ? submitted : room;
  assign to_boundary = 5'd16 - {1'b0, sq_head[3:0]};

  always_ff @(posedge clk) begin
    if (sq_enable) begin
      sq_count   <= least < {{PW-5{1'b0}}, to_boundary} ? least[4:0] : to_boundary;
      sq_address <= sq_base + {{64-QW-PW-4{1'b0}}, sq_queue, sq_head[PW-2:0], 5'b0};
    end
    cq_address <= cq_base + {{64-QW-PW-4{1'b0}}, cq_queue, cq_place, 5'b0};
  end
endmodule
