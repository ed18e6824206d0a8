# Every instruction that describes frames, in all its forms. The bytes between them are the rows' code; nobody runs it.
    .text
    .p2align 4
    .globl rare
    .type rare, @function
rare:
    .cfi_startproc
    nop
    .cfi_escape 0x0c, 7, 16                     # def_cfa: rsp + 16
    nop
    .cfi_escape 0x05, 6, 2                      # offset_extended: rbp at -16
    nop
    .cfi_escape 0x11, 6, 0x7f                   # offset_extended_sf: at +8
    nop
    .cfi_escape 0x0a, 0x0d, 6                   # remember_state, def_cfa_register: rbp + 16
    nop
    .cfi_escape 0x12, 6, 0x7e                   # def_cfa_sf: rbp + 16
    nop
    .cfi_escape 0x0a, 0x13, 0x5d                # remember_state, def_cfa_offset_sf: + 280
    nop
    .cfi_escape 0x0e, 0x80, 0x08                # def_cfa_offset: + 1024
    nop
    .cfi_escape 0x0b                            # restore_state
    .skip 300
    .cfi_escape 0x08, 6                         # same_value
    .skip 70000
    .cfi_escape 0x0b                            # restore_state
    nop
    .cfi_escape 0x07, 6                         # undefined
    nop
    .cfi_escape 0xc6                            # restore
    nop
    .cfi_escape 0x86, 2, 0x06, 6                # offset, restore_extended
    nop
    .cfi_escape 0x83, 4, 0x05, 0x8f, 0x00, 7    # offset of another register, offset_extended of r15 in a long number
    nop
    .cfi_escape 0x2e, 16                        # GNU_args_size
    nop
    .cfi_escape 0x09, 6, 3                      # register: rbp is in rbx
    nop
    .cfi_escape 0x09, 3, 6, 0xc6                # rbx is in rbp; restore
    nop
    .cfi_escape 0x14, 6, 2                      # val_offset
    nop
    .cfi_escape 0x08, 6, 0x15, 6, 0x7e          # val_offset_sf
    nop
    .cfi_escape 0x08, 6, 0x14, 3, 2, 0x15, 3, 2 # of another register
    nop
    .cfi_escape 0x16, 6, 2, 0x77, 8             # val_expression
    nop
    .cfi_escape 0xc6, 0x16, 3, 2, 0x77, 8       # of another register
    nop
    .cfi_escape 0x10, 6, 2, 0x76, 0x70          # expression: at rbp - 16
    nop
    .cfi_escape 0x10, 6, 2, 0x77, 8             # at rsp + 8
    nop
    .cfi_escape 0x10, 6, 4, 0x76, 0, 0x23, 8    # at rbp + 0 + 8
    nop
    .cfi_escape 0xc6, 0x10, 3, 2, 0x76, 0       # of another register
    nop
    .cfi_escape 0x0f, 2, 0x77, 32               # def_cfa_expression: rsp + 32
    nop
    .cfi_escape 0x0f, 3, 0x76, 0x80, 0x01       # rbp + 128
    nop
    .cfi_escape 0x0f, 3, 0x76, 0x78, 0x06       # at rbp - 8
    nop
    .cfi_escape 0x0f, 5, 0x77, 16, 0x06, 0x23, 8 # at rsp + 16, and 8 more
    nop
    .cfi_escape 0x0f, 6, 0x76, 0x70, 0x06, 0x23, 0x80, 0x02 # 256 more
    nop
    .cfi_escape 0x0f, 4, 0x76, 0x78, 0x06, 0x06 # at what is there
    nop
    .cfi_escape 0x0f, 2, 0x73, 8                # rbx + 8
    nop
    .cfi_escape 0x0f, 3, 0x73, 8, 0x06          # at rbx + 8
    nop
    .cfi_escape 0x0f, 0                         # nothing
    nop
    .cfi_escape 0x0c, 10, 8                     # def_cfa: r10 + 8
    nop
    .cfi_escape 0x0d, 7                         # def_cfa_register: rsp + 8
    nop
    .cfi_escape 0x0c, 0x87, 0x02, 8             # of a register that is none: 263 is no 7
    nop
    .cfi_escape 0x0c, 7, 8, 0x05, 0x86, 0x02, 2 # rsp + 8; offset of 262, which is no 6
    nop
    .cfi_escape 0x05, 16, 2                     # the return address at -16
    nop
    .cfi_escape 0xd0                            # and as usual
    nop
    .cfi_escape 0x09, 16, 2                     # in rcx
    nop
    .cfi_escape 0x06, 16                        # and as usual
    nop
    .cfi_escape 0x07, 16                        # nowhere
    nop
    .cfi_escape 0x0c, 3, 8                      # and the frame by a register that is not followed
    nop
    .cfi_endproc
    .size rare, . - rare
