// Data Buffer: 4 KB for each slot, as 64 rows of 64 bytes. Each lane of a byte is a memory of its own, so that a beat
// that is rotated goes to two rows in one cycle: lanes from `rotation` on to `write_row`, those below to the next one.
// A payload lies as its destination is aligned. Row 64 of one that is not aligned is row 0, whose lanes it leaves free.
module pd_data_buffer #(
  parameter SLOTS = 32,
  localparam SW = $clog2(SLOTS)
) (
  input  logic          clk,
  input  logic          write_valid,
  input  logic [SW-1:0] write_slot,
  input  logic [5:0]    write_row,
  input  logic [5:0]    rotation,
  input  logic [511:0]  write_data,
  input  logic [63:0]   write_keep,
  input  logic          read_enable,
  input  logic [SW-1:0] read_slot,
  input  logic [5:0]    read_row,
  output logic [511:0]  read_data  // a cycle later, until the next read
);
  logic [5:0] next_row;
  assign next_row = write_row + 1'b1;

  genvar lane;
  generate
    for (lane = 0; lane < 64; lane = lane + 1) begin : lanes
      logic [7:0] memory[64*SLOTS-1:0];
      logic [5:0] row;
      logic [7:0] out;
      assign row = {1'b0, rotation} > lane ? next_row : write_row;
      assign read_data[8*lane+:8] = out;
      always_ff @(posedge clk) begin
        if (write_valid && write_keep[lane]) memory[{write_slot, row}] <= write_data[8*lane+:8];
        if (read_enable) out <= memory[{read_slot, read_row}];
      end
    end
  endgenerate
endmodule
